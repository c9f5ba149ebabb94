"""The source of a writing task: ordered rows, some at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from retention.datafile.parquet import ROW_GROUP_ROWS

_HELD_BYTES = 64 << 20


class RowSource:
    """Rows, taken in given numbers.

    Args:
        tables: the rows; no table is empty.
    """

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._rest = next(tables, None)
        self._tables = tables

    def take(self, count: int) -> Iterator[pa.Table]:
        """The next `count` rows, or the remaining ones, in tables of a row group or 64 MiB."""
        held: list[pa.Table] = []
        while count and self._rest is not None:
            held.append(self._rest.slice(0, count))
            self._rest = self._rest.slice(held[-1].num_rows)
            count -= held[-1].num_rows
            if not self._rest.num_rows:
                self._rest = next(self._tables, None)
            sizes = [(table.num_rows, table.nbytes) for table in held]
            rows_held, bytes_held = map(sum, zip(*sizes, strict=True))
            if rows_held >= ROW_GROUP_ROWS or bytes_held >= _HELD_BYTES:
                yield pa.concat_tables(held)
                held = []
        if held:
            yield pa.concat_tables(held)
