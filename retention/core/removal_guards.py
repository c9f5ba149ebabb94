"""The guards of a stream: how much a single pass may take of it, and what becomes of a pass that takes more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GuardAction = Literal["refuse", "warn"]
"""`refuse`: a pass beyond the limit changes nothing; `warn`: it goes on, and says so."""


@dataclass(frozen=True)
class GuardLimit:
    """The limit of a guard, in its own unit, and what becomes of a pass beyond it."""

    limit: int
    then: GuardAction = "refuse"


@dataclass(frozen=True)
class RemovalGuards:
    """The guards of a stream; None: there is no such guard."""

    max_removed_share: GuardLimit | None = None
    """Percent of the messages."""
    max_removed_bytes: GuardLimit | None = None
    """Bytes, by the broker's accounting."""
    min_kept_messages: GuardLimit | None = None
    """Messages that stay at least."""


NO_GUARDS = RemovalGuards()
"""The guards of a stream that has none."""
