"""Protocols of a server's rules for a log: first sequence, accepted columns, numbering, and division into segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from retention.core.spans import Array
from retention.layout.batch_split import BatchPart
from retention.layout.partition_tails import Ends
from retention.layout.segment_roll import Tail

ORDER = "order_by_"
"""The prefix of the names of the caller's order columns, followed by a number."""


@dataclass(frozen=True)
class Share:
    """Neighbouring rows of a sorted frame, written by one task into one segment."""

    part: int
    """The task's partition of the frame."""
    partition: int
    """The log's partition."""
    base: int
    """The segment's base."""
    first_seq: int
    messages: int
    bytes: int
    pieces: Sequence[BatchPart] = ()
    """The batches of a topic's messages."""
    gaps: int = 0
    """The number of sequences between its messages that no message has."""

    @property
    def wrote(self) -> dict[str, int]:
        """The counts and sequences that the files must have."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "min_seq": self.first_seq,
            "max_seq": self.first_seq + self.messages + self.gaps - 1,
        }


@dataclass(frozen=True)
class RowBlock:
    """Neighbouring rows of one partition of a sorted frame, by their totals."""

    part: int
    """The partition of the frame."""
    number: int
    """The number of the block in its partition."""
    rows: int
    bytes: int
    """The sum of `Dialect.sizes`."""
    first: int
    """`Dialect.laid_by` of the first row."""
    last: int
    """The highest `Dialect.laid_by` of a row."""


class Layer(Protocol):
    """The assignment of a sorted frame's rows to segments, a block at a time, in order."""

    @property
    def ends(self) -> Ends:
        """The ends of the log after the rows."""
        ...

    def take_whole(self, block: RowBlock) -> bool:
        """Lay the next block by its totals, unless a segment or batch may end in it; returns whether it was laid."""
        ...

    def take(self, block: RowBlock, laid_by: Array, sizes: Array) -> None:
        """Lay the next block by its rows.

        Args:
            block: its totals.
            laid_by: int64, `Dialect.laid_by` of each row.
            sizes: int64, `Dialect.sizes` of each row.
        """
        ...

    def shares(self) -> list[Share]:
        """The shares of the writing tasks, in order, after the last row."""
        ...


class Dialect(Protocol):
    """One server's rules for appends to a log; a value sent with tasks."""

    @property
    def is_topic(self) -> bool:
        """Whether the log may have several partitions, with readers that store offsets."""
        ...

    @property
    def first_seq(self) -> int:
        """The first sequence of a partition."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The allowed columns of a caller's table of messages."""
        ...

    @property
    def order(self) -> Sequence[str]:
        """The columns that order rows of a frame for their sequences; rows equal in all of them are interchangeable."""
        ...

    @property
    def written(self) -> pa.Schema:
        """The columns that `completed` needs; missing ones are null, or times of the clock."""
        ...

    @property
    def timed_by(self) -> str:
        """The optional column of times, nanoseconds since the epoch."""
        ...

    @property
    def laid_by(self) -> str:
        """The integer column that a layer needs in addition to sizes; ascending if rows are sorted by it first."""
        ...

    @property
    def also_narrow(self) -> Sequence[str]:
        """Integer columns that a layout needs besides `laid_by` and sizes."""
        ...

    def ordered_by(self, columns: Sequence[pa.Field]) -> Dialect:
        """These rules, with additional columns that order rows before the dialect's own.

        In a topic, this applies to the rows of one address.

        Args:
            columns: columns of the rows, most significant first; their names begin with `ORDER`.
        """
        ...

    def sizes(self, rows: pa.Table) -> Array:
        """The bytes of each row for a layer, int64; `rows` has the columns `written`."""
        ...

    def layer(self, tail_of: Callable[[int], Tail], turn: int, now_ns: int) -> Layer:
        """Begin a layout of rows after the ends of partitions.

        Args:
            tail_of: the end of a partition, by its number.
            turn: the number of earlier appends without a named partition.
            now_ns: the clock, nanoseconds since the epoch.
        """
        ...

    def completed(self, rows: pa.Table, share: Share, at: int) -> pa.Table:
        """The stored rows of a share, shape `FILE_COLUMNS`.

        Args:
            rows: rows with the columns `written`.
            share: the share of the rows.
            at: the number of earlier rows of the share.

        Raises:
            UsageError: a row is not a valid message.
            RefusedError: the server would refuse a row.
        """
        ...
