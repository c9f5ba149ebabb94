"""Tables in slices, for steps that copy their input: a copy of a whole table would double its memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

_MOST_ROWS = 1 << 16
_BYTES = 8 << 20


def slices_of(table: pa.Table, row_bytes: int | None = None) -> Iterator[pa.Table]:
    """A table in slices of some thousand rows, or of a few mebibytes if rows are long; no slices of an empty table.

    Args:
        table: any.
        row_bytes: the bytes of a row to copy; None: those of a row of the table.
    """
    if row_bytes is None:
        row_bytes = table.nbytes // max(table.num_rows, 1)
    count = max(min(_MOST_ROWS, _BYTES // max(row_bytes, 1)), 1)
    for start in range(0, table.num_rows, count):
        yield table.slice(start, count)
