"""The rows of a table in place that legal holds cover: statistics decide files, and narrow columns decide the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from retention.config.table_types import parse_column
from retention.core.spans import Array
from retention.core.spoken_commands import command
from retention.core.table_policy import LIMITS, Column
from retention.core.units import INT64_MAX
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.statistics import bounds
from retention.delta.vectors import bitmap_of, read_vector
from retention.engine_port import Engine
from retention.errors import ConfigError, RefusedError, UsageError
from retention.planners.table_rows import NarrowFile, read_narrow
from retention.rules.tables.holds import HeldRows
from retention.rules.tables.ticks import TimeColumn, time_column
from retention.stores.holds import Hold
from retention.tables.bounds import in_ticks, is_partition, leaf_of, partition_values
from retention.tables.narrow import NarrowReader
from retention.tables.opened import OpenedTable
from retention.tables.plan import FileRemovals
from retention.tables.wanted_key import scalar_of

ChooseEngine = Callable[[int], Engine]
_TIME = "time"


@dataclass(frozen=True)
class TableHold:
    """A legal hold of a table, with the columns that it reads."""

    rows: HeldRows
    columns: Mapping[str, Column]
    """Name in narrow rows → column of the table."""


@dataclass(frozen=True)
class TableHolds:
    """The legal holds in effect on one version of a table."""

    snapshot: DeltaSnapshot
    holds: tuple[TableHold, ...]

    @classmethod
    def of(cls, table: OpenedTable, snapshot: DeltaSnapshot, holds: Sequence[Hold]) -> TableHolds:
        """Legal holds in the types of the table's columns.

        Raises:
            RefusedError: one names a column that the table does not have any more, or that has another type.
        """
        return cls(snapshot, tuple(_typed(table, snapshot, hold) for hold in holds))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the legal holds, in the order of the masks."""
        return tuple(hold.rows.id for hold in self.holds)

    def masks(self, snapshot: DeltaSnapshot, rows: Array) -> tuple[Array, Array]:
        """Masks of files that may have covered rows, and of those with only such; shape (files,).

        Args:
            snapshot: the table, with these files only.
            rows: the live rows of each of them.
        """
        some, whole = self._masks(snapshot, rows)
        return np.any(some, axis=0), np.any(whole, axis=0)

    def positions(
        self, removals: Sequence[FileRemovals], choose: ChooseEngine
    ) -> list[dict[str, BitMap64]]:
        """The positions of live rows that each legal hold covers, for each file with removals; {}: none covers any.

        Args:
            removals: those of live files.
            choose: the engine that reads a number of bytes.

        Raises:
            DamagedError, StorageError: a file cannot be read.
        """
        positions: list[dict[str, BitMap64]] = [{} for _ in removals]
        if not removals:
            return positions
        places = {path: row for row, path in enumerate(self.snapshot.files["path"].to_pylist())}
        rows = pa.array([places[each.add["path"]] for each in removals], pa.int64())
        named = replace(self.snapshot, files=self.snapshot.files.take(rows))
        some, whole = self._masks(named, np.array([each.live for each in removals]))
        is_open = (some & ~whole).any(axis=0)
        for at in np.flatnonzero(~is_open & some.any(axis=0)).tolist():
            every = _live(self.snapshot.root, removals[at])
            positions[at] = {
                self.ids[hold]: every for hold in np.flatnonzero(whole[:, at]).tolist()
            }
        to_read = np.flatnonzero(is_open).tolist()
        read = self.covered([_task_of(removals[at]) for at in to_read], choose)
        for at, by_hold in zip(to_read, read, strict=True):
            positions[at] = by_hold
        return positions

    def covered(
        self, tasks: Sequence[Callable[[NarrowReader], NarrowFile]], choose: ChooseEngine
    ) -> list[dict[str, BitMap64]]:
        """The positions of the rows that each legal hold covers, from narrow rows.

        Args:
            tasks: functions that make the task of a file from a reader of the columns.
            choose: the engine that reads a number of bytes.

        Raises:
            DamagedError, StorageError: a file cannot be read.
        """
        positions: list[dict[str, BitMap64]] = [{} for _ in tasks]
        for holds, reader in self._readers() if tasks else ():
            made = [task(reader) for task in tasks]
            weights = [task.narrow_bytes for task in made]
            parts = choose(sum(weights)).map(partial(_covered, holds), made, weights)
            for of_file, part in zip(positions, parts, strict=True):
                stored = zip(holds, part, strict=True)
                of_file |= {hold.id: BitMap64.deserialize(packed) for hold, packed in stored}
        return positions

    def _masks(self, snapshot: DeltaSnapshot, rows: Array) -> tuple[Array, Array]:
        """The same masks for each legal hold; shape (holds, files)."""
        pairs = [_masks(snapshot, hold, rows) for hold in self.holds]
        some, whole = (np.array(masks, dtype=bool) for masks in zip(*pairs, strict=True))
        return some, whole

    def _readers(self) -> Iterator[tuple[list[HeldRows], NarrowReader]]:
        """Legal holds that agree about the column of times, and a reader of their columns."""
        groups: dict[Column | None, list[TableHold]] = {}
        for hold in self.holds:
            groups.setdefault(hold.columns.get(_TIME), []).append(hold)
        for group in groups.values():
            columns = {name: path for hold in group for name, path in hold.columns.items()}
            yield [hold.rows for hold in group], NarrowReader.of(self.snapshot, columns)


@dataclass(frozen=True)
class Subtracted:
    """The removals of a plan without held rows."""

    removals: tuple[FileRemovals, ...]
    kept: dict[str, int]
    """Legal hold → the rows that limits would remove, and it keeps; a row under several counts for each."""
    whole: int = 0
    """The files that stay whole because of held rows, though a limit would remove them whole."""


def without_held(
    holds: TableHolds,
    removals: Sequence[FileRemovals],
    only_whole: Set[str],
    choose: ChooseEngine,
) -> Subtracted:
    """Subtract held rows from removals.

    Args:
        holds: the legal holds.
        removals: the removals from live files.
        only_whole: the limits that remove whole files only.
        choose: the engine that reads a number of bytes.

    Raises:
        DamagedError, StorageError: a file cannot be read.
    """
    kept, left, whole = dict.fromkeys(holds.ids, 0), [], 0
    for each, by_hold in zip(removals, holds.positions(removals, choose), strict=True):
        of_file = _positions(holds.snapshot.root, each) if by_hold else {}
        gone = BitMap64.union(BitMap64(), *of_file.values())
        for hold, positions in by_hold.items():
            kept[hold] += len(positions & gone)
        held = BitMap64.union(BitMap64(), *by_hold.values())
        if not held:
            left.append(each)
            continue
        whole += bool(only_whole & of_file.keys())
        rest = {limit: of_file[limit] - held for limit in of_file.keys() - only_whole}
        if any(rest.values()):
            left.append(replace(each, rows=_named_by_some(rest)))
    return Subtracted(tuple(left), kept, whole)


def _named_by_some(rows: Mapping[str, BitMap64]) -> dict[str, BitMap64 | None]:
    """The limits that remove rows, in the order of a pass."""
    return {limit: rows[limit] for limit in LIMITS if rows.get(limit)}


def _positions(root: str, removals: FileRemovals) -> dict[str, BitMap64]:
    """Limit → the positions of the rows that it removes."""
    return {
        limit: _live(root, removals) if rows is None else rows
        for limit, rows in removals.rows.items()
    }


def _live(root: str, removals: FileRemovals) -> BitMap64:
    """The positions of the rows that a file's vector leaves."""
    hidden = read_vector(root, removals.add.get("deletionVector"))
    return BitMap64(range(removals.live + len(hidden))) - hidden


def _task_of(removals: FileRemovals) -> Callable[[NarrowReader], NarrowFile]:
    return lambda reader: reader.task(0, removals.add, removals.live)


def _covered(holds: Sequence[HeldRows], task: NarrowFile) -> list[bytes]:
    """The positions of the rows of a file that each legal hold covers."""
    rows, _ = read_narrow(task)
    positions = rows["row"].to_numpy()
    return [bitmap_of(positions[hold.covers(rows)]).serialize() for hold in holds]


def _typed(table: OpenedTable, snapshot: DeltaSnapshot, hold: Hold) -> TableHold:
    columns: dict[str, Column] = {}
    values: dict[str, pa.Scalar] = {}
    try:
        for name, text in (hold.values or {}).items():
            column = parse_column(name)
            columns[f"held:{name}"] = column
            values[f"held:{name}"] = scalar_of(table.name, leaf_of(snapshot, column), text)
        time = _time(snapshot, hold)
    except (ConfigError, UsageError) as error:
        reason = str(error).partition(";")[0]
        raise RefusedError(
            f"{table.name}: legal hold {hold.id} cannot be applied to the table as it is ({reason}), so it is unknown "
            "which rows must be kept; nothing was removed; give the table that column back, or end the legal hold: "
            f"{command('hold release', hold.id, options='--reason …')}"
        ) from error
    if hold.time is not None:
        columns[_TIME] = parse_column(hold.time.column)
    return TableHold(HeldRows(hold.id, values, time, hold.from_ns, hold.to_ns), columns)


def _time(snapshot: DeltaSnapshot, hold: Hold) -> TimeColumn | None:
    if hold.time is None:
        return None
    leaf = leaf_of(snapshot, parse_column(hold.time.column))
    kind = time_column(leaf.type, hold.time.unit, hold.time.zone)
    if kind is None:
        raise ConfigError(
            f"{hold.time.column} has the type {leaf.type}, which is no time by itself"
        )
    return kind


def _masks(snapshot: DeltaSnapshot, hold: TableHold, rows: Array) -> tuple[Array, Array]:
    """Masks of the files of a snapshot with rows that a legal hold may cover, and with only such rows."""
    every = np.arange(len(rows))
    some = rows > 0
    whole = some.copy()
    for name, value in hold.rows.values.items():
        leaf = leaf_of(snapshot, hold.columns[name])
        if not is_partition(snapshot, leaf):
            whole[:] = False
            continue
        equal = pc.equal(partition_values(snapshot, leaf, every), value)
        mask = pc.fill_null(equal, fill_value=False).to_numpy(zero_copy_only=False).astype(bool)
        some, whole = some & mask, whole & mask
    if hold.rows.time is not None:
        leaf = leaf_of(snapshot, hold.columns[_TIME])
        logged = bounds(snapshot, leaf.physical, leaf.type)
        low, high = (
            pc.fill_null(in_ticks(values, leaf.type), unknown).to_numpy(zero_copy_only=False)
            for values, unknown in ((logged.min, -INT64_MAX), (logged.max, INT64_MAX))
        )
        hidden = snapshot.files["vector"].is_valid().to_numpy()
        nulls = pc.fill_null(logged.null_count, -1).to_numpy(zero_copy_only=False)
        exact = np.where(hidden & (nulls != 0), -1, nulls)
        by_time = hold.rows.by_time(low, high, exact, rows)
        some, whole = some & by_time[0], whole & by_time[1]
    return some, whole
