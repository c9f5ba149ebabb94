"""A look at a table of another owner: its files, columns and writers, and the effect that limits of age would have."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from retention.config.table_types import format_column
from retention.core.table_policy import Column
from retention.core.units import DAY, MICROSECOND
from retention.delta import entries, features, log_files, schema, snapshot, statistics
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.stored_entries import stored_entry
from retention.errors import RefusedError, UsageError
from retention.inspect.time_guess import (
    TIMES,
    ColumnBounds,
    TimeCandidate,
    expiry_columns,
    key_columns,
    time_candidates,
)
from retention.rules.tables.ticks import TICK_NS
from retention.tables.directory.snapshot import DirectorySnapshot, read_directory
from retention.tables.opened import TableFormatName

_WRITERS = 20
"""The number of newest entries that are read for their writers."""


@dataclass(frozen=True)
class AgeEffect:
    """The effect of a limit of age, as statistics bound it."""

    max_age_ns: int
    whole_files: int
    """Files of which every row would be removed, without being read."""
    whole_bytes: int
    cut_files: int
    """Files to be read, because rows of them may be removed."""
    cut_bytes: int
    rows_at_least: int
    rows_at_most: int


@dataclass(frozen=True)
class TableLook:
    """A table as its log describes it, or the footers of its files."""

    location: str
    format: TableFormatName
    has_log: bool
    version: int
    files: int
    bytes: int
    rows: int
    """Rows of the files whose statistics have their number, without dead ones."""
    uncounted_files: int
    """Files without that statistic."""
    vectors: int
    """Files with a deletion vector."""
    features: tuple[str, ...]
    writers: tuple[tuple[str, int], ...]
    """Programs and operations of the newest entries, and the number of entries of each; or programs and files."""
    columns: tuple[tuple[Column, str], ...]
    """Path and type of each column that is no struct."""
    times: tuple[TimeCandidate, ...]
    """The columns that may have the time of a row, the likeliest first."""
    expiries: tuple[Column, ...]
    keys: tuple[Column, ...]
    passed_over: tuple[tuple[str, int], ...] = ()
    """Reasons for which files of a directory are left out, and the number of files."""


def look_at(location: str, now_ns: int) -> tuple[TableLook, DeltaSnapshot]:
    """Look at a table; of data files only the footers are read, and only of a directory without a log.

    Args:
        location: its absolute location.
        now_ns: the instant against which times are rated.

    Raises:
        UsageError: there is neither a Delta table nor a directory of Parquet files.
        RefusedError: the engine cannot remove rows from it.
        DamagedError, StorageError: its log cannot be read.
    """
    table = _read(location, now_ns)
    unsafe = features.refusal(table)
    if unsafe is not None:
        raise RefusedError(unsafe)
    leaves = schema.leaves(table.metadata)
    columns = [(leaf.path, _kind(leaf)) for leaf in leaves]
    oldest_first = pc.sort_indices(table.files["modification_time"])
    bounds = [_bounds(table, leaf, oldest_first) for leaf in leaves if _kind(leaf) in TIMES]
    times = time_candidates(bounds, now_ns)
    timed = {candidate.path for candidate in times}
    rows = statistics.bounds(table, (), "string").rows
    look = TableLook(
        location=location,
        format="parquet" if isinstance(table, DirectorySnapshot) else "delta",
        has_log=not isinstance(table, DirectorySnapshot),
        version=table.version,
        files=table.files.num_rows,
        bytes=_total(table.files["size"]),
        rows=_total(rows),
        uncounted_files=rows.null_count,
        vectors=table.files.num_rows - table.files["vector"].null_count,
        features=tuple(sorted(table.features - features.unused(table))),
        writers=_writers(table),
        columns=tuple(columns),
        times=tuple(times),
        expiries=tuple(expiry_columns(columns)),
        keys=tuple(key_columns((path, kind) for path, kind in columns if path not in timed)),
        passed_over=tuple(table.passed_over.items())
        if isinstance(table, DirectorySnapshot)
        else (),
    )
    return look, table


def _read(location: str, now_ns: int) -> DeltaSnapshot:
    """The table at a location: its log, or the files of a directory without one."""
    if log_files.has_log(location) or not Path(location).is_dir():
        return snapshot.read(location)
    directory = read_directory(location, now_ns, None)
    if not directory.files.num_rows and directory.passed_over:
        reasons = ", ".join(
            f"{reason.replace('_', ' ')}: {count}"
            for reason, count in directory.passed_over.items()
        )
        raise UsageError(
            f"{location}: no file of this directory is one that nobody writes any more ({reasons}); look again in a "
            "minute"
        )
    if not directory.files.num_rows:
        raise UsageError(
            f"{location}: this is no table: it has neither a Delta log nor a complete Parquet file; correct the "
            "location, or let its writer create it"
        )
    return directory


def chosen_time(look: TableLook, name: str) -> TimeCandidate:
    """The candidate of a column that a person names, with backticks or without.

    Raises:
        UsageError: the table has no such column, or it cannot have times.
    """
    kinds = dict(look.columns)
    column = next((path for path in kinds if name in (".".join(path), format_column(path))), None)
    if column is None:
        names = ", ".join(map(format_column, kinds))
        raise UsageError(f"{look.location}: there is no column {name}; there are {names}")
    for candidate in look.times:
        if candidate.path == column:
            return candidate
    if kinds[column] in ("long", "integer"):
        raise UsageError(
            f"{look.location}: the values of {name} are no times since the epoch in one unit: the smallest and the "
            "largest disagree, or there are no statistics; name another column, or write the entry by hand"
        )
    raise UsageError(
        f"{look.location}: {name} is of type {kinds[column]}, which has no times; name a column of type date, "
        "timestamp, timestamp_ntz, long or integer"
    )


def age_effect(
    table: DeltaSnapshot, time: TimeCandidate, max_age_ns: int, now_ns: int
) -> AgeEffect:
    """The effect of a limit of age on a table, bounded by its statistics alone."""
    leaf = next(leaf for leaf in schema.leaves(table.metadata) if leaf.path == time.path)
    low, high, nulls, rows = statistics.bounds(table, leaf.physical, time.type)
    cutoff = (now_ns - max_age_ns) // (TICK_NS[time.unit] if time.unit else MICROSECOND)
    if time.type == "date":
        # A day counts from its end; the upper bound is its last microsecond.
        low, high = pc.add(low, DAY // MICROSECOND), pc.add(high, 1)
    is_old = pc.and_(pc.less_equal(high, cutoff), pc.equal(nulls, 0))
    whole = pc.fill_null(is_old, fill_value=False)
    young = pc.fill_null(pc.greater(low, cutoff), fill_value=False)
    cut = pc.and_not(pc.invert(young), whole)
    size = table.files["size"].combine_chunks()
    at_least = _total(rows.filter(whole))
    return AgeEffect(
        max_age_ns,
        _total(whole),
        _total(size.filter(whole)),
        _total(cut),
        _total(size.filter(cut)),
        at_least,
        at_least + _total(rows.filter(cut)),
    )


def _kind(leaf: schema.Leaf) -> str:
    return leaf.type if isinstance(leaf.type, str) else leaf.type["type"]


def _bounds(table: DeltaSnapshot, leaf: schema.Leaf, order: pa.Array) -> ColumnBounds:
    low, high, _, rows = statistics.bounds(table, leaf.physical, leaf.type)
    return ColumnBounds(leaf.path, leaf.type, *(each.take(order) for each in (low, high, rows)))


def _writers(table: DeltaSnapshot) -> tuple[tuple[str, int], ...]:
    """The programs and operations of the newest entries that are there; of a directory, the programs of its files."""
    if isinstance(table, DirectorySnapshot):
        return tuple(Counter(table.writers).most_common())
    counts: Counter[str] = Counter()
    for version in range(max(table.version - _WRITERS + 1, 0), table.version + 1):
        entry = stored_entry(table.root, version)
        if entry is not None:
            info = entries.commit_info(entry.others())
            program = info.get("engineInfo") or "an unnamed program"
            counts[f"{program}: {info.get('operation') or 'no operation'}"] += 1
    return tuple(counts.most_common())


def _total(values: pa.Array | pa.ChunkedArray) -> int:
    return pc.sum(values).as_py() or 0
