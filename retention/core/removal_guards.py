"""The guards of a stream or table: how much a single pass may remove, and the effect on a pass beyond that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GuardAction = Literal["refuse", "warn"]
"""`refuse`: a pass beyond the limit changes nothing; `warn`: it continues with a warning."""


@dataclass(frozen=True)
class GuardLimit:
    """The limit of a guard, in its own unit, and the action on a pass beyond it."""

    limit: int
    then: GuardAction = "refuse"


@dataclass(frozen=True)
class RemovalGuards:
    """The guards of a stream or table; None: not set."""

    max_removed_share: GuardLimit | None = None
    """Percent of the stream's messages, or of the table's rows."""
    max_removed_bytes: GuardLimit | None = None
    """Bytes, by the broker's accounting; of a table those of whole files."""
    min_kept_messages: GuardLimit | None = None
    """The minimum number of messages, or rows, to keep."""


NO_GUARDS = RemovalGuards()
"""The guards of a stream without any."""
