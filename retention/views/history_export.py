"""An exported run history as CSV and as JSON, in batches: instants as RFC 3339, ranges as `3-7`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Any

import pyarrow as pa

from retention.core.csv_lines import csv_line, guarded
from retention.core.json_object import JsonObject
from retention.core.units import format_instant
from retention.schemas.history_export import (
    EXPORTED_LOSS,
    EXPORTED_TABLE_LOSS,
    HISTORY_EXPORT,
    TABLE_HISTORY_EXPORT,
)
from retention.storage.outputs import OutputKind, begins
from retention.views.page import begins_with

KIND = "retention history"
FORMAT_VERSION = 1
_LOSSES = {"stream": EXPORTED_LOSS, "table": EXPORTED_TABLE_LOSS}
"""First column of an export → the columns of its losses, which are its last ones."""


def csv_lines(tables: Iterable[pa.Table], shape: pa.Schema) -> Iterator[str]:
    """A header line, and a line per row; several values in a cell are separated by `; `, ranges by a space.

    A text that a spreadsheet would calculate has an apostrophe before it.

    Args:
        tables: the runs.
        shape: the shape of each, `HISTORY_EXPORT` or `TABLE_HISTORY_EXPORT`.
    """
    yield _head(shape)
    for row in rows_of(tables):
        yield csv_line(_guarded_cell(name, row[name]) for name in row)


def json_pieces(
    tables: Iterable[pa.Table], period: Mapping[str, str | None], holds: Iterable[JsonObject] = ()
) -> Iterator[str]:
    """One JSON document in pieces: its kind, the period, `runs` with their removals by segment or file, and `holds`.

    Args:
        tables: shapes `HISTORY_EXPORT` and `TABLE_HISTORY_EXPORT`; the rows of a run are adjacent.
        period: `from` and `to` as RFC 3339; None: no such limit.
        holds: the legal holds of the period.
    """
    head = {"format_version": FORMAT_VERSION, "kind": KIND, **period}
    yield f"{json.dumps(head)[:-1]}, " + '"runs": ['
    for number, (_, rows) in enumerate(groupby(rows_of(tables), key=run_of)):
        yield ",\n" if number else "\n"
        yield from _run_pieces(rows)
    yield f'\n], "holds": {json.dumps(list(holds))}}}\n'


def losses_of(first: str) -> list[str]:
    """The columns of losses of an export with this first column."""
    return _LOSSES[first].names


def _run_pieces(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """A run as a JSON object in pieces: its columns, and `removed`, its losses."""
    first = next(rows)
    names = losses_of(next(iter(first)))
    run = {name: first[name] for name in first if name not in names}
    yield f"{_json(run)[:-1]}, " + '"removed": ['
    losses = ({name: row[name] for name in names} for row in chain([first], rows))
    removed = (loss for loss in losses if any(value is not None for value in loss.values()))
    for number, loss in enumerate(removed):
        if loss.get("ranges") is not None:
            loss["ranges"] = [[each["first_seq"], each["last_seq"]] for each in loss["ranges"]]
        yield (", " if number else "") + _json(loss)
    yield "]}"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def rows_of(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    """Rows as Python values, instants as RFC 3339."""
    for table in tables:
        instants = [each.name for each in table.schema if pa.types.is_timestamp(each.type)]
        # Python represents nanoseconds since the epoch without loss.
        whole = [
            each.with_type(pa.int64()) if each.name in instants else each for each in table.schema
        ]
        for row in table.cast(pa.schema(whole)).to_pylist():
            yield row | {
                name: None if row[name] is None else format_instant(row[name]) for name in instants
            }


def run_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The stream or table of a row, and its run."""
    return next(iter(row.items())), row["run"]


def _head(shape: pa.Schema) -> str:
    return ",".join(shape.names)


def cell(name: str, value: Any) -> str:
    """A value as the text of a cell."""
    if value is None:
        return ""
    if name == "ranges":
        return " ".join(_range(each["first_seq"], each["last_seq"]) for each in value)
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def _guarded_cell(name: str, value: Any) -> str | int | float:
    return value if isinstance(value, int | float) else guarded(cell(name, value))


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def write_parquet(sink: Any, tables: Iterable[pa.Table], shape: pa.Schema) -> None:
    """Write rows as one Parquet file, identified by its schema.

    Args:
        sink: an open file.
        tables: the runs.
        shape: the shape of each, `HISTORY_EXPORT` or `TABLE_HISTORY_EXPORT`.
    """
    import pyarrow.parquet as pq

    schema = shape.with_metadata({"retention.kind": KIND})
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata))


def _is_parquet(source: Any) -> bool:
    import pyarrow.parquet as pq

    metadata = pq.read_schema(source).metadata or {}
    return metadata.get(b"retention.kind") == KIND.encode()


FILES = {
    "csv": OutputKind(
        "an exported history as CSV",
        begins("|".join(re.escape(_head(each)) for each in (HISTORY_EXPORT, TABLE_HISTORY_EXPORT))),
    ),
    "json": OutputKind(
        "an exported history as JSON", begins(rf'\{{"format_version": \d+, "kind": "{KIND}"')
    ),
    "html": OutputKind("an exported history as a page", begins(begins_with("retention evidence"))),
    "parquet": OutputKind("an exported history as Parquet", _is_parquet),
}
"""Format → the kind of its file."""
