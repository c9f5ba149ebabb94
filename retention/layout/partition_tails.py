"""The ends of a log's partitions; they advance with appended messages, split by a server's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.layout.partitioner import ROUND_ROBIN, TURN, partition_in_turn
from retention.layout.segment_roll import RollRule, SegmentPart, Tail, roll, taken_whole
from retention.layout.topic_segment_roll import AppendedBatch, BatchCut, append_cut, lay_out


class Ends(Protocol):
    """The ends of a log's partitions after an append, for its commit."""

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
        """Counters in addition to the batch numbers of writers."""
        ...


class StreamEnds:
    """The end of a stream's one partition; its messages already have sequences and times.

    Args:
        partition: its number.
        tail: its end before the first append.
        rule: the limits at which a segment is full.
    """

    def __init__(self, partition: int, tail: Tail, rule: RollRule) -> None:
        self._partition = partition
        self._next_seq, self._active = tail.next_seq, tail.active
        self._rule = rule

    def roll(self, seqs: Array, sizes: Array, ts_ns: Array) -> Iterator[SegmentPart]:
        """Append messages, split among segments by `segment_roll.roll`."""
        for piece in roll(self._active, seqs, sizes, ts_ns, self._rule):
            self._active = piece.active
            self._next_seq = int(seqs[piece.end - 1]) + 1
            yield piece

    def take_whole(self, messages: int, size: int, first_ts_ns: int, last_ts_ns: int) -> bool:
        """Append messages unless one might end or open a segment; returns whether they were appended.

        The times of the first and of the latest message decide.
        """
        active = taken_whole(self._active, size, first_ts_ns, last_ts_ns, self._rule)
        if active is None:
            return False
        self._active = active
        self._next_seq += messages
        return True

    def skip_to(self, next_seq: int) -> None:
        """Continue with a sequence; unstored messages use the sequences before it."""
        self._next_seq = next_seq

    @property
    def tail(self) -> Tail:
        """The end now."""
        return Tail(self._next_seq, self._active)

    def continues(self, tail: Tail) -> bool:
        """Whether messages written after a tail belong here: next sequence and active segment are the same."""
        bases = [active and active.base for active in (self._active, tail.active)]
        return self._next_seq == tail.next_seq and bases[0] == bases[1]

    @property
    def next_seq(self) -> dict[int, int]:
        """Partition → the next sequence to assign."""
        return {self._partition: self._next_seq}

    @property
    def open_base(self) -> dict[int, int]:
        """Partition → the base of its active segment; empty for a stream that never had one."""
        return {self._partition: self._active.base} if self._active else {}

    @property
    def batches(self) -> dict[str, int]:
        """Always empty: writers to a stream name no partition."""
        return {}


class PartitionTails:
    """The ends of a topic's partitions, which advance with each append, and the round-robin turn of the next append.

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

    def append(self, address: int, sizes: Array) -> tuple[int, list[AppendedBatch]]:
        """Append messages that belong together; returns their partition and their batches.

        Args:
            address: a partition, or `ROUND_ROBIN`, which uses one turn.
            sizes: int64, bytes of each message's record.
        """
        partition, tail = self._addressed(address)
        batches, self._tails[partition] = lay_out(tail, sizes, self._policy, self._now_us)
        return partition, batches

    def append_batch(self, address: int, cut: BatchCut) -> tuple[int, AppendedBatch]:
        """Append one batch that is already cut; returns its partition and the batch."""
        partition, tail = self._addressed(address)
        [batch], self._tails[partition] = append_cut(tail, [cut], self._policy, self._now_us)
        return partition, batch

    def _addressed(self, address: int) -> tuple[int, Tail]:
        partition = address
        if address == ROUND_ROBIN:
            partition = partition_in_turn(self.turn, self._policy.partitions)
            self.turn += 1
        return partition, self._tails.get(partition) or self._tail_of(partition)

    @property
    def next_seq(self) -> dict[int, int]:
        """Partition → the next offset, for partitions with appended messages."""
        return {partition: tail.next_seq for partition, tail in self._tails.items()}

    @property
    def open_base(self) -> dict[int, int]:
        """Partition → the base of its active segment, for partitions with appended messages."""
        return {
            partition: tail.active.base for partition, tail in self._tails.items() if tail.active
        }

    @property
    def batches(self) -> dict[str, int]:
        """The number of used turns, if any."""
        return {} if self.turn == self._first_turn else {TURN: self.turn}
