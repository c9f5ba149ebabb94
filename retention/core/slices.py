"""Tables in slices, for steps that copy what they get: a copy of a whole table would take its memory once more."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

_MOST_ROWS = 1 << 16
_BYTES = 8 << 20


def slices_of(table: pa.Table, row_bytes: int | None = None) -> Iterator[pa.Table]:
    """A table in slices of some thousand rows, or a few mebibytes where rows are long; none of one without rows.

    Args:
        table: any.
        row_bytes: the bytes of a row of what is copied; None: of the table.
    """
    if row_bytes is None:
        row_bytes = table.nbytes // max(table.num_rows, 1)
    count = max(min(_MOST_ROWS, _BYTES // max(row_bytes, 1)), 1)
    for start in range(0, table.num_rows, count):
        yield table.slice(start, count)
