"""Rows of Python values collected into a table; few are in memory at a time, because Python values take more space."""

from __future__ import annotations

import pyarrow as pa

_MOST_ROWS = 1 << 14
_MOST_BYTES = 8 << 20


class HeldRows:
    """A collector that turns rows into Arrow tables, some at a time.

    Args:
        schema: the schema of the table; a row has a value for each of its fields.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[tuple[object, ...]] = []
        self._bytes = 0
        self._tables = [schema.empty_table()]

    def add(self, row: tuple[object, ...]) -> None:
        """Add the next row."""
        self._rows.append(row)
        self._bytes += sum([len(value) for value in row if type(value) is bytes])
        if self._bytes >= _MOST_BYTES or len(self._rows) >= _MOST_ROWS:
            self._turn()

    def table(self) -> pa.Table:
        """All rows, in their order."""
        if self._rows:
            self._turn()
        return pa.concat_tables(self._tables)

    def _turn(self) -> None:
        columns = [list(column) for column in zip(*self._rows, strict=True)]
        self._tables.append(pa.table(columns, schema=self._schema))
        self._rows, self._bytes = [], 0
