"""Protocols of a server's rules for a log: where it begins to count, what it takes, how it numbers and divides that."""

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
"""Under this and a number, rows have the columns of the caller that decide their order."""


@dataclass(frozen=True)
class Share:
    """Neighbouring rows of a sorted frame that one task writes into one segment."""

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
    """The batches that a topic's messages are in."""

    @property
    def wrote(self) -> dict[str, int]:
        """The counts and sequences that the files must hold."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "min_seq": self.first_seq,
            "max_seq": self.first_seq + self.messages - 1,
        }


@dataclass(frozen=True)
class Block:
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
    """Rows of a sorted frame on their way into segments, a block at a time, in order."""

    @property
    def ends(self) -> Ends:
        """The ends of the log behind the rows."""
        ...

    def take_whole(self, block: Block) -> bool:
        """Lay the next block if its totals tell that no segment or batch ends in it; whether that was done."""
        ...

    def take(self, block: Block, laid_by: Array, sizes: Array) -> None:
        """Lay the next block by its rows.

        Args:
            block: its totals.
            laid_by: int64, `Dialect.laid_by` of each row.
            sizes: int64, `Dialect.sizes` of each row.
        """
        ...

    def shares(self) -> list[Share]:
        """The shares of the tasks that write, in order, now that no row follows."""
        ...


class Dialect(Protocol):
    """One server's rules for what is appended to a log; a value that tasks carry along."""

    @property
    def is_topic(self) -> bool:
        """Whether the log may have several partitions, whose readers store offsets."""
        ...

    @property
    def first_seq(self) -> int:
        """The sequence at which a partition begins to count."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The columns that a caller's table of messages may have."""
        ...

    @property
    def order(self) -> Sequence[str]:
        """The columns by which rows of a frame get their sequences: rows equal in all of them are interchangeable."""
        ...

    @property
    def written(self) -> pa.Schema:
        """The columns that `completed` needs; those that a frame lacks are null, or times of the clock."""
        ...

    @property
    def timed_by(self) -> str:
        """The column of times, nanoseconds since the epoch, which a frame's rows need not have."""
        ...

    @property
    def laid_by(self) -> str:
        """The column, whole numbers, that a layer needs beside the sizes; it rises if rows are in order of it first."""
        ...

    def ordered_by(self, columns: Sequence[pa.Field]) -> Dialect:
        """These rules for rows with columns that decide their order before the dialect's own.

        In a topic that holds for the rows of one address.

        Args:
            columns: columns of the rows, the first one deciding first; their names begin with `ORDER`.
        """
        ...

    def sizes(self, rows: pa.Table) -> Array:
        """The bytes of each row that a layer counts, int64; `rows` has the columns `written`."""
        ...

    def layer(self, tail_of: Callable[[int], Tail], turn: int, now_ns: int) -> Layer:
        """Begin to lay rows behind the ends of partitions.

        Args:
            tail_of: the end of a partition, by its number.
            turn: how many appends that named no partition were given one before.
            now_ns: the clock, nanoseconds since the epoch.
        """
        ...

    def completed(self, rows: pa.Table, share: Share, at: int) -> pa.Table:
        """Rows of a share as they are stored, shape `FILE_COLUMNS`.

        Args:
            rows: of the columns `written`.
            share: the share that they are of.
            at: how many rows of the share come before.

        Raises:
            UsageError: a row cannot be a message.
            RefusedError: a server would refuse a row.
        """
        ...
