"""An exported run history as CSV and as JSON, in batches: instants as RFC 3339, ranges as `3-7`."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from retention.core.units import format_instant
from retention.schemas.history_export import EXPORTED_LOSS, EXPORTED_RUN, HISTORY_EXPORT
from retention.storage.outputs import OutputKind, begins

KIND = "retention history"
FORMAT_VERSION = 1
CSV_HEAD = ",".join(HISTORY_EXPORT.names)
_INSTANTS = [field.name for field in HISTORY_EXPORT if pa.types.is_timestamp(field.type)]
_WHOLE = pa.schema(
    [field.with_type(pa.int64()) if field.name in _INSTANTS else field for field in HISTORY_EXPORT]
)
"""The shape with instants in nanoseconds since the epoch, which Python represents without loss."""


def csv_lines(tables: Iterable[pa.Table]) -> Iterator[str]:
    """A header line, and a line per row; several values in a cell are separated by `; `, ranges by a space.

    Args:
        tables: shape `HISTORY_EXPORT`.
    """
    yield CSV_HEAD
    for row in _rows(tables):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([_cell(name, row[name]) for name in row])
        yield line.getvalue()


def json_pieces(tables: Iterable[pa.Table], period: Mapping[str, str | None]) -> Iterator[str]:
    """One JSON document in pieces: its kind, the period, and `runs`, each with its removals by segment.

    Args:
        tables: shape `HISTORY_EXPORT`; the rows of a run are adjacent.
        period: `from` and `to` as RFC 3339; None: no such limit.
    """
    head = {"format_version": FORMAT_VERSION, "kind": KIND, **period}
    yield f"{json.dumps(head)[:-1]}, " + '"runs": ['
    for number, (_, rows) in enumerate(groupby(_rows(tables), key=itemgetter("stream", "run"))):
        yield ",\n" if number else "\n"
        yield from _run_pieces(rows)
    yield "\n]}\n"


def _run_pieces(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """A run as a JSON object in pieces: its columns, and `removed`, its losses."""
    first = next(rows)
    yield f"{_json({name: first[name] for name in EXPORTED_RUN.names})[:-1]}, " + '"removed": ['
    losses = (row for row in chain([first], rows) if row["messages"] is not None)
    for number, row in enumerate(losses):
        loss = {name: row[name] for name in EXPORTED_LOSS.names}
        if loss["ranges"] is not None:
            loss["ranges"] = [[each["first_seq"], each["last_seq"]] for each in loss["ranges"]]
        yield (", " if number else "") + _json(loss)
    yield "]}"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rows(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    """Rows as Python values, instants as RFC 3339."""
    for table in tables:
        for row in table.cast(_WHOLE).to_pylist():
            yield row | {
                name: None if row[name] is None else format_instant(row[name]) for name in _INSTANTS
            }


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "ranges":
        return " ".join(_range(each["first_seq"], each["last_seq"]) for each in value)
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def write_parquet(sink: Any, tables: Iterable[pa.Table]) -> None:
    """Write rows as one Parquet file, identified by its schema.

    Args:
        sink: an open file.
        tables: shape `HISTORY_EXPORT`.
    """
    import pyarrow.parquet as pq

    schema = HISTORY_EXPORT.with_metadata({"retention.kind": KIND})
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata))


def _is_parquet(source: Any) -> bool:
    import pyarrow.parquet as pq

    metadata = pq.read_schema(source).metadata or {}
    return metadata.get(b"retention.kind") == KIND.encode()


FILES = {
    "csv": OutputKind("an exported history as CSV", begins(re.escape(CSV_HEAD))),
    "json": OutputKind(
        "an exported history as JSON", begins(rf'\{{"format_version": \d+, "kind": "{KIND}"')
    ),
    "parquet": OutputKind("an exported history as Parquet", _is_parquet),
}
"""Format → the kind of its file."""
