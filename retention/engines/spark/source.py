"""What a task that writes messages reads: its partition's rows, some at a time, and whether they can be messages."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.headers import MAX_BLOCK_BYTES
from retention.core.subjects import valid_mask
from retention.datafile.parquet import ROW_GROUP_ROWS
from retention.errors import UsageError

_HELD_BYTES = 64 << 20
_BLOCK = r"\ANATS/1\.0\r\n(?:[^:\r\n]+:[^\r\n]*\r\n)+\r\n\z"


class Source:
    """A partition's rows, taken a number at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = (batch for batch in batches if batch.num_rows)
        self._rest = next(self._batches, None)
        self.part = -1 if self._rest is None else self._rest["part"][0].as_py()

    @property
    def is_spent(self) -> bool:
        """Whether all rows were taken."""
        return self._rest is None

    def take(self, count: int) -> Iterator[pa.Table]:
        """The next rows, `count` of them or what is left, in tables of a row group or 64 MiB."""
        held: list[pa.RecordBatch] = []
        while count and self._rest is not None:
            held.append(self._rest.slice(0, count))
            self._rest = self._rest.slice(held[-1].num_rows)
            count -= held[-1].num_rows
            if not self._rest.num_rows:
                self._rest = next(self._batches, None)
            sizes = [(batch.num_rows, batch.nbytes) for batch in held]
            rows_held, bytes_held = map(sum, zip(*sizes, strict=True))
            if rows_held >= ROW_GROUP_ROWS or bytes_held >= _HELD_BYTES:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)


def checked(arrived: pa.Table) -> pa.Table:
    """The same rows, if all of them can be messages.

    Raises:
        UsageError: a subject or a header block cannot be one.
    """
    valid = valid_mask(arrived["subject"])
    if not pc.all(valid, min_count=0).as_py():
        subject = arrived["subject"].filter(pc.invert(valid))[0].as_py()
        raise UsageError(
            f"a row's subject is {subject!r}; it must have tokens between dots, no whitespace and no wildcard; nothing "
            "was appended; correct or leave out such rows"
        )
    blocks = arrived["headers"].drop_null()
    whole = pc.and_(
        pc.match_substring_regex(blocks, _BLOCK),
        pc.less_equal(pc.binary_length(blocks), MAX_BLOCK_BYTES),
    )
    if not pc.all(whole, min_count=0).as_py():
        raise UsageError(
            "the headers of a row are no header block of at most 65,535 bytes: names without colons, values without "
            "line breaks; nothing was appended; correct or leave out such rows"
        )
    return arrived
