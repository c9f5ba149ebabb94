"""The state of a replayed server after a publish, as far as the messages that are stored here do not tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from retention.rules.replay.publishes import SINCE_EVER_NS
from retention.schemas.empty import empty_table
from retention.schemas.replay import AHEAD, GONE, REMEMBERED, SHIFTS


@dataclass(frozen=True)
class ReplayState:
    """A server's state after its last publish.

    It holds the messages stored here up to `position` that are not in `gone`, and those in `ahead`.
    """

    position: int
    """The sequence here of the last publish that the server has answered; one less than the first one's: none."""
    last_seq: int
    """The last sequence that the server has assigned."""
    clock_ns: int = SINCE_EVER_NS
    """The instant of the last publish, or of an update of the configuration after it; nanoseconds since the epoch."""
    shift: int = 0
    """The difference of the next publish's sequence on the server from its sequence here."""
    last_id: bytes = b""
    """The digest of the id of the last message that the server stored; empty without one."""
    is_complete: bool = True
    """Whether every publish is known, so that expected sequences can be compared."""
    gone: pa.Table = field(default_factory=partial(empty_table, GONE))
    """The messages that are stored here although the server has removed or never stored them; shape `GONE`."""
    ahead: pa.Table = field(default_factory=partial(empty_table, AHEAD))
    """The messages that expired after the last publish and are stored here no more; shape `AHEAD`."""
    ids: pa.Table = field(default_factory=partial(empty_table, REMEMBERED))
    """Shape `REMEMBERED`."""
    shifts: pa.Table = field(default_factory=partial(empty_table, SHIFTS))
    """Of the messages that it holds; shape `SHIFTS`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Key of the configuration → value, of everything that decides what the server does."""
