"""The ends of a log's partitions, moving on with what is appended to them, as a server's rules divide it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.layout.partitioner import ROUND_ROBIN, TURN, partition_in_turn
from retention.layout.segment_roll import RollRule, SegmentPart, Tail, roll, taken_whole
from retention.layout.topic_segment_roll import Batch, BatchCut, lay_out, place


class Ends(Protocol):
    """The ends of a log's partitions after an append, as its commit counts them."""

    @property
    def next_seq(self) -> Mapping[int, int]:
        """Partition → the next sequence to assign."""
        ...

    @property
    def open_base(self) -> Mapping[int, int]:
        """Partition → the base of its active segment."""
        ...

    @property
    def batches(self) -> Mapping[str, int]:
        """Counters beside the batch numbers of writers."""
        ...


class StreamEnds:
    """The end of a stream, which has one partition; its messages come with sequences and times.

    Args:
        partition: its number.
        tail: where it ends before.
        rule: when a segment is full.
    """

    def __init__(self, partition: int, tail: Tail, rule: RollRule) -> None:
        self._partition = partition
        self._next_seq, self._active = tail.next_seq, tail.active
        self._rule = rule

    def roll(self, seqs: Array, sizes: Array, ts_ns: Array) -> Iterator[SegmentPart]:
        """Append messages, as `segment_roll.roll` divides them among segments."""
        for piece in roll(self._active, seqs, sizes, ts_ns, self._rule):
            self._active = piece.active
            self._next_seq = int(seqs[piece.end - 1]) + 1
            yield piece

    def take_whole(self, messages: int, size: int, first_ts_ns: int, last_ts_ns: int) -> bool:
        """Append messages, by the time of the first and the latest one, unless one might end or open a segment.

        Whether that was done is returned.
        """
        active = taken_whole(self._active, size, first_ts_ns, last_ts_ns, self._rule)
        if active is None:
            return False
        self._active = active
        self._next_seq += messages
        return True

    def skip_to(self, next_seq: int) -> None:
        """Go on with a sequence: those before it are used by messages that are not stored."""
        self._next_seq = next_seq

    @property
    def next_seq(self) -> dict[int, int]:
        """Partition → the next sequence to assign."""
        return {self._partition: self._next_seq}

    @property
    def open_base(self) -> dict[int, int]:
        """Partition → the base of its active segment; of a stream that never had one, nothing."""
        return {self._partition: self._active.base} if self._active else {}

    @property
    def batches(self) -> dict[str, int]:
        """Nothing: whoever writes to a stream names no partition."""
        return {}


class PartitionTails:
    """The ends of a topic's partitions, which move on with each append, and the turn of the next one.

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
        self.turn = self._first_turn = turn

    def append(self, address: int, sizes: Array) -> tuple[int, list[Batch]]:
        """Append messages that belong together; return the partition that takes them, and their batches.

        Args:
            address: a partition, or `ROUND_ROBIN`, which uses one turn.
            sizes: int64, bytes of each message's record.
        """
        partition, tail = self._addressed(address)
        batches, self._tails[partition] = lay_out(tail, sizes, self._policy, self._now_us)
        return partition, batches

    def append_batch(self, address: int, cut: BatchCut) -> tuple[int, Batch]:
        """Append one batch that is cut already; return the partition that takes it, and the batch."""
        partition, tail = self._addressed(address)
        [batch], self._tails[partition] = place(tail, [cut], self._policy, self._now_us)
        return partition, batch

    def _addressed(self, address: int) -> tuple[int, Tail]:
        partition = address
        if address == ROUND_ROBIN:
            partition = partition_in_turn(self.turn, self._policy.partitions)
            self.turn += 1
        return partition, self._tails.get(partition) or self._tail_of(partition)

    @property
    def next_seq(self) -> dict[int, int]:
        """Partition → the next offset, of partitions that took messages."""
        return {partition: tail.next_seq for partition, tail in self._tails.items()}

    @property
    def open_base(self) -> dict[int, int]:
        """Partition → the base of its active segment, of those that took something."""
        return {
            partition: tail.active.base for partition, tail in self._tails.items() if tail.active
        }

    @property
    def batches(self) -> dict[str, int]:
        """The turns that were used, if any was."""
        return {} if self.turn == self._first_turn else {TURN: self.turn}
