"""Footers of Parquet files: the number of rows, the columns as Delta names their types, and bounds of times."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from retention.core.table_policy import Column
from retention.storage import files
from retention.storage.errors import is_of_storage, storage_error

INTEGERS = ("byte", "short", "integer", "long")
"""Delta's integers, ascending by width."""
TIMES = ("date", "timestamp", "timestamp_ntz", *INTEGERS)
"""Delta's types of which a footer bounds the values exactly."""
_PRIMITIVES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}
_TICKS = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}
_LEAST, _MOST = -(1 << 62), 1 << 62
"""The limits of ticks that may be widened without an overflow."""


class Bounds(NamedTuple):
    """Bounds of a column: days, microseconds since the epoch, or integers; None: unknown."""

    low: int | None
    high: int | None
    nulls: int | None


@dataclass(frozen=True)
class Footer:
    """The footer of one file."""

    rows: int
    types: Mapping[Column, str]
    """Path of each column that is no struct → Delta's type, or Arrow's where Delta has none."""
    bounds: Mapping[Column, Bounds]
    writer: str


def read_footer(location: str, bounded: Collection[Column] | None) -> Footer | None:
    """Read the footer of a file; None if it has none that can be read.

    Args:
        location: the file.
        bounded: the columns to read bounds of; None: all with values that may be times.

    Raises:
        FileNotFoundError: it is gone.
        StorageError: the storage failed.
    """
    try:
        with files.open_input(location) as source:
            return _footer(pq.read_metadata(source), bounded)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and is_of_storage(error):
            raise storage_error(location, error) from error
        return None


def _footer(metadata: pq.FileMetaData, bounded: Collection[Column] | None) -> Footer:
    types: dict[Column, str] = {}
    bounds: dict[Column, Bounds] = {}
    for column, kind, number in _leaves(metadata.schema.to_arrow_schema(), (), [0]):
        described = metadata.schema.column(number)
        types[column] = delta_type(kind, described)
        if types[column] in TIMES and (bounded is None or column in bounded):
            bounds[column] = _bounds(metadata, number, types[column])
    return Footer(metadata.num_rows, types, bounds, metadata.created_by or "an unnamed program")


def _leaves(
    fields: Any, path: Column, counter: list[int]
) -> Iterator[tuple[Column, pa.DataType, int]]:
    """Path, Arrow's type and number of each column that is no struct; lists and maps have several numbers."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, (*path, field.name), counter)
        else:
            yield (*path, field.name), field.type, counter[0]
            counter[0] += _width(field.type)


def _width(kind: pa.DataType) -> int:
    """The number of columns in a file that have the values of a type."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(_width(kind.field(number).type) for number in range(kind.num_fields))


def delta_type(kind: pa.DataType, described: pq.ColumnSchema) -> str:
    """Delta's type for values of a column; INT96 values are instants, as for Spark."""
    if pa.types.is_nested(kind):
        return "map" if pa.types.is_map(kind) else "array"
    if pa.types.is_timestamp(kind):
        is_instant = _logical(described).get("isAdjustedToUTC", kind.tz is not None)
        return "timestamp" if is_instant or _is_int96(described) else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return _PRIMITIVES.get(kind, str(kind))


def _is_int96(described: pq.ColumnSchema) -> bool:
    return bool(described.physical_type == "INT96")


def _logical(described: pq.ColumnSchema) -> dict[str, Any]:
    return dict(json.loads(described.logical_type.to_json()))


def _bounds(metadata: pq.FileMetaData, number: int, kind: str) -> Bounds:
    """The bounds of a column over all row groups; none where statistics are absent, or not in order of values."""
    lows: list[int | None] = []
    highs: list[int | None] = []
    nulls: list[int | None] = []
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        statistics = group.column(number).statistics
        count = statistics.null_count if statistics and statistics.has_null_count else None
        nulls.append(count)
        if count != group.num_rows:
            is_bounded = statistics is not None and statistics.has_min_max
            lows.append(statistics.min_raw if is_bounded else None)
            highs.append(statistics.max_raw if is_bounded else None)
    ticks = _ticks(metadata.schema.column(number), kind)
    if ticks is None or not lows or None in lows or None in highs:
        return Bounds(None, None, _total(nulls))
    multiple, divisor = ticks
    low = min(value for value in lows if value is not None) * multiple // divisor
    high = -(-max(value for value in highs if value is not None) * multiple // divisor)
    is_exact = _LEAST <= low <= high <= _MOST
    return Bounds(low if is_exact else None, high if is_exact else None, _total(nulls))


def _ticks(described: pq.ColumnSchema, kind: str) -> tuple[int, int] | None:
    """The factor and divisor from stored values to ticks; None: stored values have no such order."""
    logical = _logical(described)
    if _is_int96(described) or not logical.get("isSigned", True):
        return None
    if kind not in ("timestamp", "timestamp_ntz"):
        return 1, 1
    return _TICKS.get(logical.get("timeUnit", ""))


def _total(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
