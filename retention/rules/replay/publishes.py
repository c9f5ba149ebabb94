"""Publishes as a replay takes them: the messages of a stream that never removed any, and what each asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

NO_ROLLUP, ROLLUP_SUBJECT, ROLLUP_ALL = range(3)
"""Roll-ups of a publish: none, of its subject, of the whole stream."""
SINCE_EVER_NS = -(2**63)
"""The clock of a server before its first publish."""
ACCEPTED = 0
"""No refusal, where a server's code of one could be."""

PUBLISHES = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("deadline_ns", pa.int64()),
        pa.field("silent", pa.bool_(), nullable=False),
        pa.field("msg_id", pa.string()),
        pa.field("rollup", pa.int8(), nullable=False),
        pa.field("early", pa.int32(), nullable=False),
        pa.field("late", pa.int32(), nullable=False),
    ]
)
"""One row per message, ascending by `seq`.

`size` and `deadline_ns` are those that the server would store, nanoseconds since the epoch and bytes by its accounting;
`deadline_ns` is null without a TTL, `NEVER` for `never`. `silent`: no marker follows its expiry. `msg_id` is null
without one, and where ids do not count. `early` and `late` are the server's codes of a refusal that the message and the
configuration decide alone, before and after the server looks for duplicates; `ACCEPTED` without one.
"""


@dataclass(frozen=True)
class Expectation:
    """The expectations of one publish, as its headers write them; None: it has none of that kind."""

    last_seq: bytes | None = None
    subject_seq: bytes | None = None
    subject: str | None = None
    """The filter of the subjects that `subject_seq` is about; None: the publish's subject."""
    last_id: bytes | None = None


@dataclass(frozen=True)
class Publishes:
    """Publishes in stored order."""

    rows: pa.Table
    """Shape `PUBLISHES`."""
    expectations: Mapping[int, Expectation] = field(default_factory=dict)
    """Sequence of a publish → its expectations, for those that have any."""

    def instants(self, held: int = 0, clock_ns: int = SINCE_EVER_NS) -> np.ndarray:
        """The instant of each publish, int64: a server's clock does not go back, so none is before an earlier one's.

        Args:
            held: the number of the first publishes to leave out: the server holds them already.
            clock_ns: the server's clock before the first of the others.
        """
        times = self.rows["ts_ns"].to_numpy().astype(np.int64)[held:]
        return np.maximum.accumulate(np.maximum(times, clock_ns))
