"""Rows that a plan removes, as Parquet, CSV or JSON lines, by the suffix of the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from retention.core.csv_lines import csv_line, guarded
from retention.core.json_object import json_value
from retention.errors import UsageError
from retention.storage.outputs import OutputKind, begins, check_output, open_output
from retention.storage.tables import write_parquet

KIND = "rows to remove"
_HEAD = "file,row,limit"


def check_rows_file(location: str) -> str:
    """Refuse a place for rows before they are read, and return the format that its suffix names.

    Raises:
        UsageError: it has no suffix of a format, or something else is there.
    """
    suffix = PurePosixPath(location).suffix.lower()
    if suffix not in FILES:
        raise UsageError(
            f"{location}: the suffix names the format of the rows: write .parquet, .csv or .jsonl"
        )
    check_output(location, FILES[suffix])
    return suffix


def write_rows(location: str, tables: Iterable[pa.Table]) -> int:
    """Write rows to a file in the format of its suffix, completely or not at all.

    Args:
        location: its place.
        tables: at least one, of one shape; as `tables.removed_rows.removed_rows`.

    Returns:
        The number of rows.

    Raises:
        UsageError: as `check_rows_file`.
    """
    suffix, rows = check_rows_file(location), 0

    def counted_tables() -> Iterator[pa.Table]:
        nonlocal rows
        for table in tables:
            rows += table.num_rows
            yield table

    with open_output(location, FILES[suffix]) as sink:
        if suffix == ".parquet":
            write_parquet(sink, counted_tables(), {"retention.kind": KIND})
        else:
            lines = _csv_lines if suffix == ".csv" else _json_lines
            for line in lines(counted_tables()):
                sink.write(f"{line}\n".encode())
    return rows


def rows_as_json(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    """Rows as JSON values by column."""
    for table in tables:
        for batch in table.to_batches(max_chunksize=1 << 14):
            for row in batch.to_pylist():
                yield {name: json_value(value) for name, value in row.items()}


def _csv_lines(tables: Iterator[pa.Table]) -> Iterator[str]:
    first = next(tables)
    yield csv_line(map(guarded, first.schema.names))
    decimals = {each.name for each in first.schema if pa.types.is_decimal(each.type)}
    for row in rows_as_json(chain([first], tables)):
        yield csv_line(value if name in decimals else _cell(value) for name, value in row.items())


def _cell(value: Any) -> Any:
    return guarded(value) if isinstance(value, str) else value


def _json_lines(tables: Iterator[pa.Table]) -> Iterator[str]:
    return (json.dumps(row, ensure_ascii=False) for row in rows_as_json(tables))


def _is_parquet(source: Any) -> bool:
    metadata = pq.read_schema(source).metadata or {}
    return metadata.get(b"retention.kind") == KIND.encode()


_JSON_LINES = OutputKind(
    "removed rows as JSON lines", begins(r'\{"file": ".*", "row": \d+, "limit": "')
)
FILES: Mapping[str, OutputKind] = {
    ".parquet": OutputKind("removed rows as Parquet", _is_parquet),
    ".csv": OutputKind("removed rows as CSV", begins(_HEAD)),
    ".jsonl": _JSON_LINES,
    ".ndjson": _JSON_LINES,
}
"""Suffix → the kind of its file."""
