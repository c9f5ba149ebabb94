"""Division of a topic's messages, which arrive in parts, among batches, and of batches among the tasks that write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.layout.partition_tails import PartitionTails
from retention.layout.topic_segment_roll import (
    Batch,
    header_bytes_of_batch,
    messages_in_whole_batches,
)


@dataclass(frozen=True)
class BatchPart:
    """Adjacent messages of one batch that one task writes."""

    part: int
    """The number of the task."""
    partition: int
    batch: Batch
    """A batch of these messages alone; its `start` and `end` count from the first message of the piece."""
    opens: bool
    """Whether the batch begins with these messages: their bytes have its header."""


class BatchSplitter:
    """A divider of messages, in order of their addresses, among batches; messages that others may join are held.

    Args:
        ends: the ends of the partitions, which move on with the messages.
        policy: the policy of the topic.
    """

    def __init__(self, ends: PartitionTails, policy: TopicPolicy) -> None:
        self._ends = ends
        self._policy = policy
        self._address: int | None = None
        self._partition: int | None = None
        """The partition that takes the messages of the address, once some were appended."""
        self._parts = self._sizes = np.zeros(0, dtype=np.int64)

    def take(self, address: Array, parts: Array, sizes: Array) -> Iterator[BatchPart]:
        """Take more messages; yield the pieces of batches that no later message can join.

        Args:
            address: int64, the partition of each message, or `IN_TURN`; equal ones are adjacent.
            parts: int64, the number of the task that writes each message, rising.
            sizes: int64, bytes of each message's record.
        """
        changes = (np.flatnonzero(np.diff(address)) + 1).tolist()
        for begin, end in pairwise([0, *changes, len(address)]):
            if int(address[begin]) != self._address:
                yield from self.rest()
                self._address, self._partition = int(address[begin]), None
            self._parts = np.concatenate([self._parts, parts[begin:end]])
            self._sizes = np.concatenate([self._sizes, sizes[begin:end]])
            yield from self._append(messages_in_whole_batches(self._sizes, self._policy))

    def rest(self) -> Iterator[BatchPart]:
        """Yield the pieces of the held messages, after which none follows."""
        yield from self._append(len(self._sizes))

    def _append(self, count: int) -> Iterator[BatchPart]:
        if not count or self._address is None:
            return
        known = self._address if self._partition is None else self._partition
        sizes, parts = self._sizes[:count], self._parts[:count]
        self._sizes, self._parts = self._sizes[count:], self._parts[count:]
        self._partition, batches = self._ends.append(known, sizes)
        for batch in batches:
            inside = slice(batch.start, batch.end)
            before = header_bytes_of_batch(self._policy)
            yield from _cut(batch, self._partition, (parts[inside], sizes[inside]), before)


def _cut(
    batch: Batch, partition: int, messages: tuple[Array, Array], before: int
) -> Iterator[BatchPart]:
    """Cut a batch where another task goes on.

    parts of its messages   3 3 3 4 4     two pieces: the first opens the batch, and has its header's bytes
    """
    parts, sizes = messages
    changes = (np.flatnonzero(np.diff(parts)) + 1).tolist()
    for begin, end in pairwise([0, *changes, len(parts)]):
        opens = begin == 0
        size = int(sizes[begin:end].sum()) + before * opens
        first_seq = batch.first_seq + begin
        cut = Batch(batch.base, 0, end - begin, first_seq, batch.ts_us, size)
        yield BatchPart(int(parts[begin]), partition, cut, opens)


def clipped_batches(
    pieces: Iterable[BatchPart], start: int, end: int
) -> Sequence[tuple[Batch, bool]]:
    """The batches of the messages from `start` to before `end` of some pieces, counted from `start`.

        pieces        [0 1 2][3 4]
        clip 1 … 4      ^^^^^^^        batches [0, 2) and [2, 3), of which only the second can begin a batch

    Returns:
        Each batch with whether it begins there; their `bytes` are 0, not known.
    """
    batches, begin = [], 0
    for piece in pieces:
        behind = begin + piece.batch.end
        low, high = max(begin, start), min(behind, end)
        if low < high:
            first_seq = piece.batch.first_seq + low - begin
            batch = Batch(
                piece.batch.base, low - start, high - start, first_seq, piece.batch.ts_us, 0
            )
            batches.append((batch, piece.opens and low == begin))
        begin = behind
    return batches
