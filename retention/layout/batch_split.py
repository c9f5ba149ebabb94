"""The split of a topic's messages, which arrive in blocks, into batches, and of batches among the writing tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.layout.partition_tails import PartitionTails
from retention.layout.topic_segment_roll import AppendedBatch, header_bytes_of_batch

_Run = tuple[int, int, int]
"""Adjacent messages: the number of the task that writes them, their count, and their bytes."""


@dataclass(frozen=True)
class BatchPart:
    """Adjacent messages of one batch that one task writes."""

    part: int
    """The number of the task."""
    partition: int
    batch: AppendedBatch
    """A batch of only these messages; its `start` and `end` count from the first message of the piece."""
    opens: bool
    """Whether the batch begins with these messages: their bytes have its header."""


class BatchSplitter:
    """A splitter of messages, in order of their addresses, into batches; holds the batch that later messages may join.

    It holds only counts per task, so memory grows with batches and tasks, not with messages.

    Args:
        ends: the ends of the partitions; they advance with the messages.
        policy: the policy of the topic.
    """

    def __init__(self, ends: PartitionTails, policy: TopicPolicy) -> None:
        self._ends = ends
        self._header = header_bytes_of_batch(policy)
        self._room = policy.max_message_size - self._header
        self._address: int | None = None
        self._partition: int | None = None
        """The partition for the messages of the address, after some were appended."""
        self._held: list[_Run] = []

    def take(self, address: Array, part: int, sizes: Array) -> Iterator[BatchPart]:
        """Take more messages; yields the pieces of batches that no later message can join.

        Args:
            address: int64, the partition of each message, or `ROUND_ROBIN`; equal ones are adjacent.
            part: the number of the task that writes them, no lower than for earlier messages.
            sizes: int64, bytes of each message's record.
        """
        changes = (np.flatnonzero(np.diff(address)) + 1).tolist()
        for begin, end in pairwise([0, *changes, len(address)]):
            if int(address[begin]) != self._address:
                yield from self.rest()
                self._address, self._partition = int(address[begin]), None
            yield from self._divide(part, sizes[begin:end])

    def take_whole(self, address: int, part: int, messages: int, size: int) -> bool:
        """Take more messages of one address if all of them join the held batch; returns whether they did."""
        if address != self._address or self._held_bytes + size > self._room:
            return False
        self._held.append((part, messages, size))
        return True

    def rest(self) -> Iterator[BatchPart]:
        """Yield the pieces of the held messages; no more messages follow."""
        if self._held:
            yield from self._append()

    @property
    def _held_bytes(self) -> int:
        return sum(size for _, _, size in self._held)

    def _divide(self, part: int, sizes: Array) -> Iterator[BatchPart]:
        """Add messages of the address to the held batch while they fit, then to the next ones."""
        ends = np.cumsum(sizes)
        at, before = 0, 0
        while at < len(sizes):
            room = self._room - self._held_bytes
            end = int(np.searchsorted(ends, before + room, side="right"))
            if end <= at and self._held:
                yield from self._append()
                continue
            # A batch has at least one message, however large.
            end = max(end, at + 1)
            self._held.append((part, end - at, int(ends[end - 1]) - before))
            at, before = end, int(ends[end - 1])

    def _append(self) -> Iterator[BatchPart]:
        """Append the held batch, and yield its pieces, cut where another task takes over.

        tasks of its messages   3 3 3 4 4     two pieces: the first opens the batch, and has its header's bytes
        """
        if self._address is None:
            raise AssertionError("messages are held of one address")
        runs, self._held = [*_joined(self._held)], []
        messages, size = (sum(run[at] for run in runs) for at in (1, 2))
        known = self._address if self._partition is None else self._partition
        cut = (0, messages, size + self._header)
        self._partition, batch = self._ends.append_batch(known, cut)
        first_seq = batch.first_seq
        for number, (part, count, inside) in enumerate(runs):
            opens = number == 0
            counted = inside + self._header * opens
            piece = AppendedBatch(batch.base, 0, count, first_seq, batch.ts_us, counted)
            yield BatchPart(part, self._partition, piece, opens)
            first_seq += count


def _joined(runs: Iterable[_Run]) -> Iterator[_Run]:
    """Runs, with adjacent runs of one task combined."""
    for part, inside in groupby(runs, key=itemgetter(0)):
        _, messages, sizes = zip(*inside, strict=True)
        yield part, sum(messages), sum(sizes)


def clipped_batches(
    pieces: Iterable[BatchPart], start: int, end: int
) -> Sequence[tuple[AppendedBatch, bool]]:
    """The batches of the messages `start` to `end` (exclusive) of given pieces, counted from `start`.

        pieces        [0 1 2][3 4]
        clip 1 … 4      ^^^^^^^        batches [0, 2) and [2, 3); only the second can begin a batch

    Returns:
        Each batch, and whether it begins there; `bytes` are 0 because they are unknown.
    """
    batches, begin = [], 0
    for piece in pieces:
        behind = begin + piece.batch.end
        low, high = max(begin, start), min(behind, end)
        if low < high:
            first_seq = piece.batch.first_seq + low - begin
            batch = AppendedBatch(
                piece.batch.base, low - start, high - start, first_seq, piece.batch.ts_us, 0
            )
            batches.append((batch, piece.opens and low == begin))
        begin = behind
    return batches
