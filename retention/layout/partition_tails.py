"""The ends of a topic's partitions while batches are appended, and the turn of the next partition."""

from __future__ import annotations

from collections.abc import Callable

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.layout.partitioner import IN_TURN, partition_in_turn
from retention.layout.topic_segment_roll import Batch, Tail, laid


class TopicEnds:
    """The ends of a topic's partitions, which move on with each append.

    Args:
        tail_of: a function from a partition to its end before the first append.
        turn: the number of earlier appends that named no partition.
        policy: the policy of the topic.
        now_us: the clock, microseconds since the epoch.
    """

    def __init__(
        self, tail_of: Callable[[int], Tail], turn: int, policy: TopicPolicy, now_us: int
    ) -> None:
        self._tail_of = tail_of
        self._policy = policy
        self._now_us = now_us
        self._tails: dict[int, Tail] = {}
        self.turn = turn

    def append(self, address: int, sizes: Array) -> tuple[int, list[Batch]]:
        """Append messages that belong together; return the partition that takes them, and their batches.

        Args:
            address: a partition, or `IN_TURN`, which uses one turn.
            sizes: int64, bytes of each message's record.
        """
        partition = address
        if address == IN_TURN:
            partition = partition_in_turn(self.turn, self._policy.partitions)
            self.turn += 1
        tail = self._tails.get(partition) or self._tail_of(partition)
        batches, self._tails[partition] = laid(tail, sizes, self._policy, self._now_us)
        return partition, batches

    @property
    def next_seq(self) -> dict[int, int]:
        """Partition → the next offset, of partitions that took messages."""
        return {partition: tail.next_seq for partition, tail in self._tails.items()}

    @property
    def open_base(self) -> dict[int, int]:
        """Partition → the base of its active segment, of partitions that took messages."""
        return {partition: tail.active.base for partition, tail in self._tails.items()}
