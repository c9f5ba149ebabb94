"""A directory of Parquet files, read into the shape of a Delta table's snapshot: files, columns and bounds of times."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from retention.core.table_policy import Column
from retention.core.units import MILLISECOND
from retention.delta.entries import escaped
from retention.delta.schema import arrow_type
from retention.delta.shapes import LIVE_FILES, STATS_PARSED
from retention.delta.snapshot import DeltaSnapshot
from retention.storage import files
from retention.tables.bounds import of_ticks
from retention.tables.directory.footers import INTEGERS, Bounds, Footer, read_footer
from retention.tables.directory.listing import ListedFile, Pin, list_directory
from retention.tables.directory.partitions import (
    SpelledTime,
    column_type,
    partition_values,
    spelled_time,
)

UNREADABLE = "without_readable_footer"
"""The reason for which a file is passed over that is no Parquet file, or not yet."""
_NO_FEATURES = {"minReaderVersion": 1, "minWriterVersion": 2}
_STATISTICS = ("minValues", "maxValues", "nullCount")
_UNKNOWN = Bounds(None, None, None)


@dataclass(frozen=True)
class DirectorySnapshot(DeltaSnapshot):
    """A directory as it was listed. It has no versions; the identity of each file is in its `tags`."""

    passed_over: Mapping[str, int] = field(default_factory=dict)
    """Reason → the number of files that are not among `files`, and stay."""
    writers: Mapping[str, int] = field(default_factory=dict)
    """Program → the number of files that it wrote."""


@dataclass(frozen=True)
class _Described:
    """A data file with its footer and the values of its partition."""

    file: ListedFile
    footer: Footer
    values: Mapping[str, str | None]


def read_directory(
    location: str, now_ns: int, bounded: Collection[Column] | None
) -> DirectorySnapshot:
    """List a directory and read the footers of its files; no column is read.

    Args:
        location: the directory.
        now_ns: the wall clock, nanoseconds since the epoch.
        bounded: the columns to read bounds of; None: all with values that may be times.

    Raises:
        UsageError: there is no directory.
        RefusedError: its readers go by a log or a list of files, or a part of it lies on another file system.
        StorageError: a file or a directory cannot be read.
    """
    listing = list_directory(location, now_ns)
    described: list[_Described] = []
    for file in listing.files:
        try:
            footer = read_footer(files.join(location, file.path), bounded)
        except FileNotFoundError:
            continue
        if footer is None:
            listing.passed_over[UNREADABLE] += 1
        else:
            described.append(_Described(file, footer, partition_values(file.path)))
    partitions = _partition_types(described)
    spelled = spelled_time(partitions)
    if spelled is not None:
        partitions[spelled.name] = spelled.type
    columns = _columns(described, partitions)
    return DirectorySnapshot(
        location,
        0,
        _NO_FEATURES,
        {
            "id": listing.identity,
            "schemaString": _schema(
                {**columns, **{(name,): kind for name, kind in partitions.items()}}
            ),
            "partitionColumns": list(partitions),
            "configuration": {},
        },
        _files(described, columns, spelled),
        passed_over={reason: count for reason, count in listing.passed_over.items() if count},
        writers=Counter(each.footer.writer for each in described),
    )


def pin_of_add(add: Mapping[str, Any]) -> Pin:
    """The identity that a file had when its `add` was made."""
    return Pin(add["size"], int(add["tags"]["mtime_ns"]), int(add["tags"]["inode"]))


def _partition_types(described: Sequence[_Described]) -> dict[str, str]:
    """Partition column → Delta's type, in the order of directories."""
    names = dict.fromkeys(name for each in described for name in each.values)
    return {name: column_type(each.values.get(name) for each in described) for name in names}


def _columns(described: Sequence[_Described], partitions: Collection[str]) -> dict[Column, str]:
    """Path → Delta's type of each column that files have; those of the same name as a partition's are hidden by it."""
    kinds: dict[Column, set[str]] = {}
    for each in described:
        for column, kind in each.footer.types.items():
            if column[0] not in partitions:
                kinds.setdefault(column, set()).add(kind)
    structs = {column[:depth] for column in kinds for depth in range(1, len(column))}
    return {
        column: _common(given | ({"struct"} if column in structs else set()))
        for column, given in kinds.items()
        if not any(column[:depth] in kinds for depth in range(1, len(column)))
    }


def _common(kinds: Collection[str]) -> str:
    """The type of all files' values; several names where files disagree, which no rule can use."""
    if all(kind in INTEGERS for kind in kinds):
        return max(kinds, key=INTEGERS.index)
    return " or ".join(sorted(kinds))


def _schema(columns: Mapping[Column, str]) -> str:
    return json.dumps(_struct(columns))


def _struct(columns: Mapping[Column, str]) -> dict[str, Any]:
    """Delta's struct of columns by their paths."""
    fields = []
    for name in dict.fromkeys(column[0] for column in columns):
        inner = {column[1:]: kind for column, kind in columns.items() if column[0] == name}
        kind = inner.get(())
        fields.append(
            {
                "name": name,
                "type": _struct(inner) if kind is None else _nested(kind),
                "nullable": True,
                "metadata": {},
            }
        )
    return {"type": "struct", "fields": fields}


def _nested(kind: str) -> Any:
    return {"type": kind} if kind in ("array", "map") else kind


def _files(
    described: Sequence[_Described], columns: Mapping[Column, str], spelled: SpelledTime | None
) -> pa.Table:
    """The files, shape `LIVE_FILES` with typed statistics."""
    rows = [
        {
            "path": escaped(each.file.path),
            "partition_values": [*_values(each, spelled).items()],
            "size": each.file.pin.size,
            "modification_time": each.file.pin.mtime_ns // MILLISECOND,
            "tags": [
                ("mtime_ns", str(each.file.pin.mtime_ns)),
                ("inode", str(each.file.pin.inode)),
            ],
        }
        for each in described
    ]
    statistics = _statistics([each.footer for each in described], columns)
    return pa.Table.from_pylist(rows, LIVE_FILES).append_column(STATS_PARSED, statistics)


def _values(described: _Described, spelled: SpelledTime | None) -> dict[str, str | None]:
    values = dict(described.values)
    return values if spelled is None else {**values, spelled.name: spelled.value(values)}


def _statistics(footers: Sequence[Footer], columns: Mapping[Column, str]) -> pa.StructArray:
    """The rows and bounds of files, as checkpoints have them."""
    rows = pa.array([footer.rows for footer in footers], pa.int64())
    bounded = {
        column: [_bounds_of(footer, column) for footer in footers]
        for column in dict.fromkeys(column for footer in footers for column in footer.bounds)
        if column in columns
    }
    kinds: dict[str, dict[Column, pa.Array]] = {name: {} for name in _STATISTICS}
    for column, of_files in bounded.items():
        kind = arrow_type(columns[column])
        if kind is None:
            continue
        for name, values in zip(_STATISTICS, zip(*of_files, strict=True), strict=True):
            ticks = pa.array(values, pa.int64())
            kinds[name][column] = ticks if name == "nullCount" else of_ticks(ticks, kind)
    parts = {name: _struct_array(arrays) for name, arrays in kinds.items() if arrays}
    return pa.StructArray.from_arrays([rows, *parts.values()], names=["numRecords", *parts])


def _bounds_of(footer: Footer, column: Column) -> Bounds:
    """The bounds in a file; a file without the column has nulls in all of its rows."""
    absent = Bounds(None, None, footer.rows) if column not in footer.types else _UNKNOWN
    return footer.bounds.get(column, absent)


def _struct_array(arrays: Mapping[Column, pa.Array]) -> pa.StructArray:
    """Arrays by the paths of columns, nested."""
    nested: list[pa.Array] = []
    names = list(dict.fromkeys(column[0] for column in arrays))
    for name in names:
        inner = {column[1:]: array for column, array in arrays.items() if column[0] == name}
        nested.append(inner[()] if () in inner else _struct_array(inner))
    return pa.StructArray.from_arrays(nested, names=names)
