"""What a log asks its server's rules: where it begins to count, what it takes, how it numbers and divides that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from retention.core.spans import Array
from retention.layout.batch_split import BatchPart
from retention.layout.partition_tails import Ends
from retention.layout.segment_roll import Tail


@dataclass(frozen=True)
class Share:
    """Neighbouring rows of a sorted frame that one task writes into one segment."""

    part: int
    """The task's partition of the frame."""
    partition: int
    """The log's."""
    base: int
    """The segment's."""
    first_seq: int
    messages: int
    bytes: int
    pieces: Sequence[BatchPart] = ()
    """The batches that a topic's messages are in."""

    @property
    def wrote(self) -> dict[str, int]:
        """What the files must hold."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "min_seq": self.first_seq,
            "max_seq": self.first_seq + self.messages - 1,
        }


class Layer(Protocol):
    """Rows of a sorted frame on their way into segments, some at a time."""

    @property
    def ends(self) -> Ends:
        """Where the log ends behind them."""
        ...

    def take(self, rows: pa.RecordBatch, parts: Array) -> None:
        """Lay some more rows.

        Args:
            rows: `Dialect.laid_by`, and the lengths of `Dialect.measured` under their columns' names.
            parts: which partition of the frame has each row, rising.
        """
        ...

    def shares(self) -> list[Share]:
        """Who writes what, in order, now that no row follows."""
        ...


class Dialect(Protocol):
    """One server's rules for what is appended to a log; a value that tasks carry along."""

    @property
    def is_topic(self) -> bool:
        """Whether the log may have several partitions, whose readers store offsets."""
        ...

    @property
    def first_seq(self) -> int:
        """Where a partition begins to count."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """What a caller's table of messages may have."""
        ...

    @property
    def order(self) -> Sequence[str]:
        """By which columns rows of a frame get their sequences: rows equal in all of them are interchangeable."""
        ...

    @property
    def written(self) -> Sequence[str]:
        """The columns that `completed` needs."""
        ...

    @property
    def laid_by(self) -> Sequence[str]:
        """The columns that a layer needs as they are."""
        ...

    @property
    def measured(self) -> Sequence[str]:
        """The columns of which a layer needs the lengths."""
        ...

    def layer(self, tail_of: Callable[[int], Tail], turn: int, now_ns: int) -> Layer:
        """Begin to lay rows behind the ends of partitions.

        Args:
            tail_of: where a partition ends.
            turn: how many appends that named no partition were given one before.
            now_ns: the clock, nanoseconds since the epoch.
        """
        ...

    def completed(self, rows: pa.Table, share: Share, at: int) -> pa.Table:
        """Rows of a share as they are stored, shape `FILE_COLUMNS`.

        Args:
            rows: of the columns `written`.
            share: what they are of.
            at: how many rows of the share come before.

        Raises:
            UsageError: one cannot be a message.
            RefusedError: a server would refuse one.
        """
        ...
