"""JetStream's rules for appends to a stream: first sequence, sizes, segments, and rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core import message_rows
from retention.core.headers import MAX_BLOCK_BYTES
from retention.core.spans import Array
from retention.core.subjects import MAX_SUBJECT_BYTES, valid_mask
from retention.datafile.segment_writer import PARTITION, with_sequences
from retention.dialects.dialect import RowBlock, Share
from retention.errors import UsageError
from retention.layout.partition_tails import StreamEnds
from retention.layout.segment_roll import RollRule, Tail

FIRST_SEQ = 1
"""The first sequence of a stream without `first_seq` in its configuration."""
COLUMNS = ("subject", "payload", "headers", "ts_ns", "time")

WRITTEN = pa.schema(
    [
        pa.field("ts_ns", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary()),
    ]
)

_SHOWN = 60
_BLOCK = r"\ANATS/1\.0\r\n(?:[^:\r\n]+:[^\r\n]*\r\n)+\r\n\z"


@dataclass(frozen=True)
class JetStream:
    """The rules of one stream."""

    first_seq: int
    rule: RollRule
    storage: message_rows.Storage
    is_topic: bool = False
    columns: tuple[str, ...] = COLUMNS
    order: tuple[str, ...] = ("ts_ns", "subject", "headers", "payload")
    written: pa.Schema = WRITTEN
    timed_by: str = "ts_ns"
    laid_by: str = "ts_ns"
    also_narrow: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: StreamConfig) -> Self:
        """The rules by a stream's configuration."""
        rule = RollRule(config.segment_size, config.segment_span_ns)
        return cls(config.first_seq or FIRST_SEQ, rule, config.storage)

    def ends(self, tail: Tail) -> StreamEnds:
        """The mutable end of the stream."""
        return StreamEnds(PARTITION, tail, self.rule)

    def ordered_by(self, columns: Sequence[pa.Field]) -> Self:
        """These rules, with columns that order rows before the times."""
        order = (*(column.name for column in columns), *self.order)
        return replace(self, order=order, written=pa.schema([*self.written, *columns]))

    def sizes(self, rows: pa.Table) -> Array:
        """The bytes of each message, by the server's accounting."""
        subject, headers, payload = (rows[name] for name in ("subject", "headers", "payload"))
        sizes = message_rows.message_sizes(subject, headers, payload, self.storage)
        return np.asarray(sizes)

    def layer(self, tail_of: Callable[[int], Tail], turn: int, now_ns: int) -> StreamLayer:
        """Begin a layout of rows after the stream's last message."""
        return StreamLayer(tail_of(PARTITION), self)

    def completed(self, rows: pa.Table, share: Share, at: int) -> pa.Table:
        """The stored rows of a share, shape `FILE_COLUMNS`.

        Raises:
            UsageError: a subject or a header block is not valid.
        """
        refuse_malformed(rows)
        [stored] = with_sequences(
            [message_rows.complete_rows(rows, self.storage)], share.first_seq + at
        )
        return stored


class StreamLayer:
    """The assignment of a frame's rows to segments of a stream.

    Args:
        tail: the end of the stream.
        dialect: its rules.
    """

    def __init__(self, tail: Tail, dialect: JetStream) -> None:
        self._next_seq = tail.next_seq
        self._shares: list[Share] = []
        self.ends = dialect.ends(tail)

    def take_whole(self, block: RowBlock) -> bool:
        """Lay the next block if no segment ends or begins in it; returns whether it was laid."""
        if not self.ends.take_whole(block.rows, block.bytes, block.first, block.last):
            return False
        base = self.ends.open_base[PARTITION]
        self._add(Share(block.part, PARTITION, base, self._next_seq, block.rows, block.bytes))
        self._next_seq += block.rows
        return True

    def take(self, block: RowBlock, laid_by: Array, sizes: Array) -> None:
        """Lay the next block by the times and sizes of its rows."""
        seqs = np.arange(self._next_seq, self._next_seq + block.rows)
        self._next_seq += block.rows
        for piece in self.ends.roll(seqs, sizes, laid_by):
            place = block.part, PARTITION, piece.active.base
            size = int(sizes[piece.start : piece.end].sum())
            self._add(Share(*place, int(seqs[piece.start]), piece.end - piece.start, size))

    def shares(self) -> list[Share]:
        """The shares of the writing tasks, in order."""
        return self._shares

    def _add(self, share: Share) -> None:
        """Append a share, merged with the last one if both have the same target."""
        last = self._shares[-1] if self._shares else None
        if last is None or (last.part, last.base) != (share.part, share.base):
            self._shares.append(share)
            return
        messages, size = last.messages + share.messages, last.bytes + share.bytes
        place = last.part, last.partition, last.base
        self._shares[-1] = Share(*place, last.first_seq, messages, size)


def refuse_malformed(rows: pa.Table) -> None:
    """Refuse rows of a DataFrame that are not valid messages.

    Args:
        rows: `subject` and `headers`.

    Raises:
        UsageError: a subject or a header block is not valid.
    """
    subjects = rows["subject"].unique()
    valid = valid_mask(subjects)
    if not pc.all(valid, min_count=0).as_py():
        subject = subjects.filter(pc.invert(valid))[0].as_py()
        if subject is not None and len(subject.encode()) > MAX_SUBJECT_BYTES:
            raise UsageError(
                f"a row's subject has {len(subject.encode()):,} bytes, {subject[:_SHOWN]!r}…; it has at most "
                f"{MAX_SUBJECT_BYTES:,}; nothing was appended; correct or leave out such rows"
            )
        raise UsageError(
            f"a row's subject is {subject!r}; it must have tokens between dots, no whitespace and no wildcard; nothing "
            "was appended; correct or leave out such rows"
        )
    blocks = rows["headers"].drop_null()
    whole = pc.and_(
        pc.match_substring_regex(blocks, _BLOCK),
        pc.less_equal(pc.binary_length(blocks), MAX_BLOCK_BYTES),
    )
    if not pc.all(whole, min_count=0).as_py():
        raise UsageError(
            "the headers of a row are not a header block of at most 65,535 bytes: names without colons, values without "
            "line breaks; nothing was appended; correct or leave out such rows"
        )
