"""Result of answers to deliveries, as the client gets it that gave them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from retention.consumers.sampling import SAMPLED, advisories


@dataclass(frozen=True)
class AnswerResult:
    """Number of answered messages, by the effect of the answer."""

    taken: int = 0
    """Messages that waited for the answer."""
    repeated: int = 0
    """Messages that were settled before."""
    undelivered: int = 0
    """Messages that had never been delivered."""
    late: int = 0
    """Messages that still wait: with `ack_policy: all` an ack below the floor in the consumer's count does nothing."""
    sampled: pa.Table = field(default_factory=SAMPLED.empty_table, repr=False)
    """Acknowledgements that `sample_freq` reports, shape `SAMPLED`."""

    def advisories(self) -> list[str]:
        """The sampled acknowledgements as JSON lines for `Stream.publish`: the messages that a server would send."""
        return advisories(self.sampled)
