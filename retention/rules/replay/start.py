"""The state of a server from which a replay goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

NOTHING_HELD = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Start:
    """A server's state after a publish: the first publishes of the replay are what it holds."""

    clock_ns: int
    """The instant of that publish, nanoseconds since the epoch."""
    last_seq: int
    """The last sequence that the server has assigned."""
    server_seqs: np.ndarray = field(default_factory=lambda: NOTHING_HELD)
    """int64, one for each held message, ascending: its sequence on the server."""
    shift: int = 0
    """The difference of the next publish's sequence on the server from its sequence here."""
    last_id: str = ""
    """The id of the last message stored; empty without one."""
    ids: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Id that is remembered → the server sequence of its message, and when it was stored."""
