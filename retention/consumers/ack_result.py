"""What became of answers to deliveries, as whoever gave them is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from retention.consumers.sampling import SAMPLED, advisories


@dataclass(frozen=True)
class Answered:
    """What became of answers, in messages."""

    taken: int = 0
    """They waited for it."""
    repeated: int = 0
    """They were settled before."""
    undelivered: int = 0
    """They had never been delivered."""
    late: int = 0
    """They wait still: with `ack_policy: all` an ack below the floor in the consumer's own count does nothing."""
    sampled: pa.Table = field(default_factory=SAMPLED.empty_table, repr=False)
    """Those that `sample_freq` reports, shape `SAMPLED`."""

    def advisories(self) -> list[str]:
        """What is reported as JSON lines for `Stream.publish`: the messages that a server would send."""
        return advisories(self.sampled)
