"""Result of a client's answers to deliveries."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from retention.consumers.sampling import SAMPLED, advisories


@dataclass(frozen=True)
class AnswerResult:
    """Number of answered messages, by the effect of the answer."""

    taken: int = 0
    """Messages that were waiting for the answer."""
    repeated: int = 0
    """Messages that were already settled."""
    undelivered: int = 0
    """Messages that had never been delivered."""
    late: int = 0
    """Messages that are still pending: with `ack_policy: all` an ack below the floor in the consumer's count has no
    effect."""
    sampled: pa.Table = field(default_factory=SAMPLED.empty_table, repr=False)
    """Acknowledgements reported because of `sample_freq`, shape `SAMPLED`."""

    def advisories(self) -> list[str]:
        """The sampled acknowledgements as JSON lines for `Stream.publish`: the messages that a server would publish."""
        return advisories(self.sampled)
