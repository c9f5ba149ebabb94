"""Iggy's rules for appends to a topic: partitions, sizes, batches, ids, and rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core import message_rows
from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.dialects.dialect import RowBlock, Share
from retention.dialects.iggy_checks import refusals_of, sizes_of
from retention.errors import RefusedError, UsageError
from retention.formats.iggy.lines import with_ids
from retention.formats.iggy.messages import decimals, halves_of
from retention.formats.iggy.user_headers import parse
from retention.layout.batch_split import BatchPart, BatchSplitter, clipped_batches
from retention.layout.partition_tails import PartitionTails
from retention.layout.segment_roll import Tail
from retention.layout.topic_segment_roll import AppendedBatch, accounted_sizes
from retention.schemas.messages import FILE_COLUMNS

COLUMNS = ("payload", "partition", "key", "id", "headers", "origin_ts_ns")
WRITTEN = pa.schema(
    [
        pa.field("address", pa.int64()),
        pa.field("origin_ts_ns", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary()),
        pa.field("partition", pa.int64()),
        pa.field("key", pa.binary()),
    ]
)

_PARTITION_SHIFT = np.uint64(54)
"""Bits below the partition in a generated id: a time in microseconds takes fewer, and a topic has at most 1000
partitions."""


@dataclass(frozen=True)
class Iggy:
    """The rules of one topic."""

    topic: str
    policy: TopicPolicy
    first_seq: int = 0
    is_topic: bool = True
    columns: tuple[str, ...] = COLUMNS
    order: tuple[str, ...] = ("address", "origin_ts_ns", "id", "headers", "payload")
    written: pa.Schema = WRITTEN
    timed_by: str = "origin_ts_ns"
    laid_by: str = "address"
    also_narrow: tuple[str, ...] = ()

    def ends(self, tail_of: Callable[[int], Tail], turn: int, now_ns: int) -> PartitionTails:
        """The mutable ends of the partitions; arguments as in `layer`."""
        return PartitionTails(tail_of, turn, self.policy, now_ns // MICROSECOND)

    def ordered_by(self, columns: Sequence[pa.Field]) -> Self:
        """These rules, with columns that order the rows of each address before the times."""
        address, *rest = self.order
        order = (address, *(column.name for column in columns), *rest)
        return replace(self, order=order, written=pa.schema([*self.written, *columns]))

    def sizes(self, rows: pa.Table) -> Array:
        """The bytes of each message's record in the log."""
        return sizes_of(rows, self.policy)

    def layer(self, tail_of: Callable[[int], Tail], turn: int, now_ns: int) -> TopicLayer:
        """Begin to lay rows after the last messages of the partitions."""
        # Read here, because a task that lays rows has no access to the table.
        tails = {partition: tail_of(partition) for partition in range(self.policy.partitions)}
        return TopicLayer(self.ends(tails.__getitem__, turn, now_ns), self.policy)

    def completed(self, rows: pa.Table, share: Share, at: int) -> pa.Table:
        """The stored rows of a share, shape `FILE_COLUMNS`.

        Raises:
            UsageError: a row is not a valid message.
            RefusedError: the server would refuse a row.
        """
        refusal = next(refusals_of(rows, self.policy), None)
        if refusal is not None:
            raise RefusedError(
                f"topic {self.topic} refuses a row (server error {refusal.code}, {refusal.error}): {refusal.reason}; "
                "nothing was appended; correct or leave out such rows"
            )
        low, high = _checked_ids(self.topic, rows)
        sent = rows.append_column("id_low", low).append_column("id_high", high)
        blocks = sent["headers"]
        empty = pc.equal(pc.binary_length(blocks), 0)
        blocks = pc.if_else(empty, pa.scalar(None, pa.binary()), blocks)
        sent = sent.set_column(sent.schema.names.index("headers"), "headers", blocks)
        inside = clipped_batches(share.pieces, at, at + rows.num_rows)
        opened = [batch for batch, opens in inside if opens]
        sizes = accounted_sizes(sizes_of(rows, self.policy), opened, self.policy)
        return self.stored(sent, share.partition, [batch for batch, _ in inside], sizes)

    def stored(
        self, sent: pa.Table, partition: int, batches: Sequence[AppendedBatch], sizes: Array
    ) -> pa.Table:
        """The stored form of messages, shape `FILE_COLUMNS`.

        An id of 0 is replaced by a unique id from partition, time and offset, so that a retry of
        the same batch gives the same id.

        Args:
            sent: `id_low`, `id_high`, `headers`, `payload`, `origin_ts_ns`.
            partition: the target partition.
            batches: the batches of the messages; the first one begins with the first message.
            sizes: int64, the accounted bytes of each message.
        """
        counts = [batch.end - batch.start for batch in batches]
        ts_us = np.repeat([batch.ts_us for batch in batches], counts)
        seqs = np.arange(batches[0].first_seq, batches[0].first_seq + sent.num_rows)
        high = (np.uint64(partition) << _PARTITION_SHIFT) | ts_us.astype(np.uint64)
        generated = np.stack([seqs.astype(np.uint64), high], axis=1)
        given = np.stack([sent[name].to_numpy() for name in ("id_low", "id_high")], axis=1)
        columns = {
            "seq": pa.array(seqs),
            "ts_ns": pa.array(ts_us * MICROSECOND),
            "headers": sent["headers"],
            "payload": sent["payload"],
            "size": pa.array(sizes),
            "msg_id": decimals(with_ids(given, generated)),
            "origin_ts_ns": pa.array(sent["origin_ts_ns"].to_numpy() // MICROSECOND * MICROSECOND),
        }
        return with_topic(pa.table(columns), self.topic)


class TopicLayer:
    """The assignment of a frame's rows to batches and segments of a topic.

    Args:
        ends: the ends of its partitions.
        policy: the topic's rules.
    """

    def __init__(self, ends: PartitionTails, policy: TopicPolicy) -> None:
        self.ends = ends
        self._laying = BatchSplitter(ends, policy)
        self._pieces: list[BatchPart] = []

    def take_whole(self, block: RowBlock) -> bool:
        """Lay the next block if all of it joins the current batch; returns whether it was laid."""
        is_even = block.first == block.last
        return is_even and self._laying.take_whole(block.first, block.part, block.rows, block.bytes)

    def take(self, block: RowBlock, laid_by: Array, sizes: Array) -> None:
        """Lay the next block by the addresses and sizes of its rows."""
        self._pieces += self._laying.take(laid_by, block.part, sizes)

    def shares(self) -> list[Share]:
        """The shares of the writing tasks, in order; no block can be laid afterwards."""
        self._pieces += self._laying.rest()
        places = groupby(self._pieces, key=attrgetter("part", "partition", "batch.base"))
        return [_share(place, tuple(inside)) for place, inside in places]


def _share(place: tuple[int, int, int], pieces: tuple[BatchPart, ...]) -> Share:
    messages = sum(piece.batch.end for piece in pieces)
    size = sum(piece.batch.bytes for piece in pieces)
    return Share(*place, pieces[0].batch.first_seq, messages, size, pieces)


def with_topic(batch: pa.RecordBatch | pa.Table, topic: str) -> pa.Table:
    """Rows of shape `FILE_COLUMNS`: Iggy knows no subjects, no lifetimes and no markers."""
    count = batch.num_rows
    given = {name: batch[name] for name in batch.schema.names if name in FILE_COLUMNS.names}
    columns = given | {
        "subject": pa.repeat(pa.scalar(topic, pa.string()), count),
        "time": message_rows.time_of(batch["ts_ns"]),
        "deadline_ns": pa.nulls(count, pa.int64()),
        "marker": pa.repeat(pa.scalar(value=False), count),
    }
    return pa.table({name: columns[name] for name in FILE_COLUMNS.names}).cast(FILE_COLUMNS)


def _checked_ids(topic: str, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Check rows, and return the halves of their ids; 0 for rows without an id."""
    try:
        if pc.any(pc.and_(pc.is_valid(rows["partition"]), pc.is_valid(rows["key"]))).as_py():
            raise ValueError("a partition and a key exclude each other")  # noqa: TRY301
        if pc.any(pc.less(rows["origin_ts_ns"], 0)).as_py():
            raise ValueError("an origin_ts_ns is not before 1970")  # noqa: TRY301
        for block in pc.unique(rows["headers"]).drop_null().to_pylist():
            parse(block)
        return halves_of(pc.fill_null(rows["id"], "0"))
    except ValueError as error:
        raise UsageError(
            f"topic {topic} cannot take a row: {error}; nothing was appended; correct or leave out such rows"
        ) from error
