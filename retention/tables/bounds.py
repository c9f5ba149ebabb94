"""Bounds of the live files of a table, from its log, in the shape that rules on files read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.core.table_policy import Column, TablePolicy
from retention.delta.parquet_rows import ParquetSource
from retention.delta.schema import Leaf, arrow_type, leaves
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.statistics import ColumnBounds, bounds
from retention.errors import ConfigError, RefusedError
from retention.rules.tables.matching import where_columns
from retention.rules.tables.ticks import TimeColumn, TimeColumns, time_column
from retention.storage.errors import first_line

_DAY_US = 86_400_000_000


def leaf_of(snapshot: DeltaSnapshot, column: Column) -> Leaf:
    """A column of the table.

    Raises:
        ConfigError: it has none of that name, or it is a list, a map, or a struct itself.
    """
    every = leaves(snapshot.metadata)
    for leaf in every:
        if leaf.path == column and isinstance(leaf.type, str):
            return leaf
    known = ", ".join(".".join(leaf.path) for leaf in every[:20])
    raise ConfigError(
        f"{snapshot.root}: the table has no column {'.'.join(column)} with single values; it has {known}"
        f"{' and others' if len(every) > 20 else ''}; correct the configuration"  # noqa: PLR2004
    )


def times_of(snapshot: DeltaSnapshot, policy: TablePolicy) -> TimeColumns:
    """The types of the columns with times.

    Raises:
        ConfigError: one cannot be a time; or is an integer without `unit`, or a local time without `zone`.
    """
    columns = policy.columns
    return TimeColumns(
        *(
            None if column is None else _time(snapshot, policy, column)
            for column in (columns.time, columns.expires_at)
        )
    )


def _time(snapshot: DeltaSnapshot, policy: TablePolicy, column: Column) -> TimeColumn:
    leaf, name = leaf_of(snapshot, column), ".".join(column)
    if leaf.type == "timestamp_ntz" and policy.columns.zone is None:
        raise ConfigError(
            f"{snapshot.root}: {name} is TIMESTAMP_NTZ, local times of a zone that the table does not name; nothing "
            "was changed; write `zone: UTC`, or the zone of its writers"
        )
    kind = time_column(leaf.type, policy.columns.unit, policy.columns.zone)
    if kind is None:
        remedy = (
            "write `unit: s`, `ms`, `us` or `ns`"
            if leaf.type in ("byte", "short", "integer", "long")
            else "name a column of type DATE, TIMESTAMP, TIMESTAMP_NTZ, or an integer"
        )
        raise ConfigError(
            f"{snapshot.root}: {name} has the type {leaf.type}, which is no time by itself; nothing was "
            f"changed; {remedy}"
        )
    return kind


def by_path(snapshot: DeltaSnapshot) -> Array:
    """The rows of the snapshot's files in order of their paths: rules number files in this order."""
    return pc.sort_indices(snapshot.files["path"]).to_numpy()


def file_bounds(
    snapshot: DeltaSnapshot,
    policy: TablePolicy,
    times: TimeColumns,
    order: Array,
    rows: pa.Array,
) -> pa.Table:
    """The files as `rules.tables.files.decide_files` reads them.

    Args:
        snapshot: the table.
        policy: its policy.
        times: the types of its time columns.
        order: the rows of the snapshot's files, in order of paths.
        rows: the number of live rows of each file, in that order.
    """
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "rows": rows,
        "bytes": snapshot.files["size"].take(pa.array(order)),
    }
    named = (
        ("time", policy.columns.time, times.time),
        ("expires_at", policy.columns.expires_at, times.expires_at),
    )
    for name, column, time in named:
        if column is not None and time is not None:
            leaf = leaf_of(snapshot, column)
            logged = _in_order(bounds(snapshot, leaf.physical, leaf.type), order)
            low, high = in_ticks(logged.min, leaf.type), in_ticks(logged.max, leaf.type)
            columns |= {
                f"{name}_min": low,
                f"{name}_max": high,
                f"{name}_nulls": _exact(logged.null_count, snapshot, order),
            }
    for number, column in enumerate(where_columns(policy)):
        leaf = leaf_of(snapshot, column)
        is_constant = is_partition(snapshot, leaf)
        columns |= {
            f"where_{number}": partition_values(snapshot, leaf, order)
            if is_constant
            else pa.nulls(len(order), arrow_type(leaf.type)),
            f"where_{number}_is_constant": pa.array([is_constant] * len(order), pa.bool_()),
        }
    return pa.table(columns)


def live_rows(snapshot: DeltaSnapshot, order: Array) -> Array:
    """The live rows of each file: by the log, else by the file's own count and its vector."""
    known = bounds(snapshot, (), "").rows.take(pa.array(order))
    rows = known.fill_null(0).to_numpy(zero_copy_only=False).copy()
    for number in np.flatnonzero(known.is_null().to_numpy(zero_copy_only=False)).tolist():
        add = snapshot.add_of(int(order[number]))
        hidden = (add.get("deletionVector") or {}).get("cardinality", 0)
        rows[number] = ParquetSource(snapshot.root, snapshot.metadata, add).rows - hidden
    return rows


def _in_order(logged: ColumnBounds, order: Array) -> ColumnBounds:
    return ColumnBounds(*(column.take(pa.array(order)) for column in logged))


def in_ticks(values: pa.Array, delta_type: str) -> pa.Array:
    """Bounds in ticks: those of days are given in microseconds."""
    if delta_type != "date":
        return values
    days = values.fill_null(0).to_numpy(zero_copy_only=False) // _DAY_US
    return pa.array(days, pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


def of_ticks(ticks: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Ticks as values of the type of their column."""
    return ticks.cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)


def _exact(nulls: pa.Array, snapshot: DeltaSnapshot, order: Array) -> pa.Array:
    """Null counts, unknown where a vector may hide some of the nulls."""
    hidden = snapshot.files["vector"].is_valid().take(pa.array(order)).combine_chunks()
    return pc.if_else(pc.and_(hidden, pc.not_equal(nulls, 0)), None, nulls)


def is_partition(snapshot: DeltaSnapshot, leaf: Leaf) -> bool:
    """Whether a column's values are in the log alone, one for each file."""
    return len(leaf.physical) == 1 and leaf.physical[0] in snapshot.partition_names


def partition_values(snapshot: DeltaSnapshot, leaf: Leaf, order: Array) -> pa.Array:
    """The values of a partition column, one for each file; as `typed_partition_values`."""
    texts = pc.map_lookup(
        snapshot.files["partition_values"].take(pa.array(order)), leaf.physical[0], "first"
    ).combine_chunks()
    return typed_partition_values(snapshot.root, leaf, texts)


def typed_partition_values(root: str, leaf: Leaf, texts: pa.Array) -> pa.Array:
    """The values of a partition column from their texts in the log.

    Text without a zone is no instant: it is null, so that no row goes by it.

    Raises:
        RefusedError: a value is no value of the column's type.
    """
    kind = arrow_type(leaf.type) or pa.string()
    values = pc.if_else(pc.equal(texts, ""), None, texts)
    if leaf.type == "timestamp":
        values = pc.if_else(pc.ends_with(values, "Z"), values, None)
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        raise RefusedError(
            f"{root}: a partition value of {'.'.join(leaf.path)} cannot be read as {leaf.type} "
            f"({first_line(error)}); nothing was changed; leave that column out of the configuration"
        ) from error
