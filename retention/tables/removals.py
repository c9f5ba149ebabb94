"""The rows that runs removed from a table, as their evidence and their records have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.table_policy import LIMITS, Column
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import read_vector
from retention.errors import DamagedError
from retention.history.kinds import TableApplied, TableUndone
from retention.planners.table_rows import read_narrow
from retention.storage import files
from retention.tables.access import access_of
from retention.tables.evidence import Evidence, of_key, read_evidence
from retention.tables.narrow import NarrowReader
from retention.tables.opened import OpenedTable
from retention.tables.records import ChangedFile, read_changes
from retention.tables.removed_rows import KEPT, limit_of_rows

Key = Mapping[Column, pa.Scalar]
"""Column of the key → the value."""


@dataclass(frozen=True)
class Removal:
    """A row that a run removed; or a whole file, of which nothing tells whether it had rows of a key."""

    run: str
    as_of_ns: int
    limit: str
    file: str
    row: int | None
    """None: some row of the file perhaps, which is deleted, and which no pass read."""
    time: Any
    """None if it is null, or unknown."""
    time_min: Any
    """Like `time_max` a bound of the file's times; None if `time` is known, or if the log had none."""
    time_max: Any
    restored_by: str | None
    """The run that brought it back."""
    is_certain: bool
    """False: the log no longer tells whether the run committed."""


@dataclass(frozen=True)
class Removals:
    """The rows of a key that runs removed."""

    removed: tuple[Removal, ...]
    """The oldest run first."""
    without_evidence: tuple[str, ...]
    """The runs that may have removed some, but recorded no such keys."""


def removals_of_key(table: OpenedTable, snapshot: DeltaSnapshot, key: Key) -> Removals:
    """The rows of a key that runs removed.

    Raises:
        DamagedError: the evidence of a run cannot be read.
    """
    removed: list[Removal] = []
    silent: list[str] = []
    for passed in _passes(table):
        evidence = read_evidence(table, passed.record.run)
        lines = None if evidence is None else of_key(table, evidence, key)
        if evidence is None or lines is None:
            silent.append(passed.record.run)
            continue
        for line in lines.to_pylist():
            if line["row"] is not None:
                removed.append(
                    passed.removal(line["file"], line["row"], line["limit"], evidence, line)
                )
            else:
                removed += _of_unread(table, snapshot, key, passed, evidence, line)
    return Removals(tuple(removed), tuple(silent))


def removals_of_row(table: OpenedTable, file: str, row: int) -> tuple[Removal, ...]:
    """The removals of one row, by its file from the table's location on, and its position.

    Raises:
        DamagedError: the records or the evidence of a run cannot be read.
    """
    return tuple(_of_row(table, file, row))


@dataclass(frozen=True)
class _Passed:
    """A run that removed rows, and the run that restored them."""

    table: OpenedTable
    record: TableApplied
    restored_by: str | None

    @cached_property
    def changed(self) -> dict[str, ChangedFile]:
        """Decoded path of a file → how the run changed it."""
        changes = read_changes(self.table, self.record.run)
        return {unquote(change.before["path"]): change for change in changes}

    def removal(
        self,
        file: str,
        row: int | None,
        limit: str,
        evidence: Evidence | None,
        line: Mapping[str, Any],
    ) -> Removal:
        """The removal of a row, from its line of the evidence."""
        time = None if evidence is None or evidence.time is None else line.get(evidence.time)
        return Removal(
            self.record.run,
            self.record.as_of_ns,
            limit,
            file,
            row,
            time,
            line.get("time_min") if time is None else None,
            line.get("time_max") if time is None else None,
            self.restored_by,
            self.record.is_done,
        )


def _passes(table: OpenedTable) -> Iterator[_Passed]:
    """The passes that committed, or may have, oldest first."""
    outcomes = list(table.history.outcomes())
    undone = {
        record.undoes: record.run
        for record in outcomes
        if isinstance(record, TableUndone) and record.is_done
    }
    for record in reversed(outcomes):
        if isinstance(record, TableApplied) and record.may_count:
            yield _Passed(table, record, undone.get(record.run))


def _of_unread(
    table: OpenedTable,
    snapshot: DeltaSnapshot,
    key: Key,
    passed: _Passed,
    evidence: Evidence,
    line: Mapping[str, Any],
) -> Iterator[Removal]:
    """The rows of a key in a file that went unread: exactly while the file is there, else the file itself."""
    file, limit = line["file"], line["limit"]
    place = access_of(table).place_of_removed(table, passed.record.run, file)
    if files.length(place) is None:
        yield passed.removal(file, None, limit, evidence, line)
        return
    change = passed.changed[file]
    names = {f"key_{number}": column for number, column in enumerate(key)}
    if evidence.time is not None and table.policy.columns.time is not None:
        names["removed_at"] = table.policy.columns.time
    task = NarrowReader.of(snapshot, names).task(0, change.before, line["rows"])
    rows, _ = read_narrow(replace(task, location=place))
    for number, value in enumerate(key.values()):
        rows = rows.filter(pc.equal(rows[f"key_{number}"], value))
    for row in rows.to_pylist():
        values = {} if evidence.time is None else {evidence.time: row.get("removed_at")}
        yield passed.removal(file, row["row"], limit, evidence, values)


def _of_row(table: OpenedTable, file: str, row: int) -> Iterator[Removal]:
    for passed in _passes(table):
        change = passed.changed.get(file)
        limit = None if change is None else _limit(table, change, row)
        if limit is not None:
            evidence = read_evidence(table, passed.record.run)
            line = {} if evidence is None else _line(evidence, file, row)
            yield passed.removal(file, row, limit, evidence, line)


def _limit(table: OpenedTable, change: ChangedFile, row: int) -> str | None:
    """The limit by which a run removed a row of a file; None if it did not."""
    [limit] = limit_of_rows(pa.array([row]).to_numpy(), change.rows)
    if limit == KEPT or row < 0:
        return None
    if None in change.rows.values() and not _has_row(table, change, row):
        return None
    return LIMITS[limit]


def _has_row(table: OpenedTable, change: ChangedFile, row: int) -> bool:
    """Whether a file that a run removed whole had a live row at a position, as far as the log and its vector tell."""
    rows = json.loads(change.before.get("stats") or "{}").get("numRecords")
    if rows is not None and row >= rows:
        return False
    # The file of the vector may be gone, as after a VACUUM; the row is then taken for one that the run removed.
    with suppress(DamagedError):
        return row not in read_vector(table.location, change.before.get("deletionVector"))
    return True


def _line(evidence: Evidence, file: str, row: int) -> dict[str, Any]:
    """The line of a row, or of its file; empty without one."""
    rows = evidence.rows
    at_row = pc.or_(
        pc.is_null(rows["row"]), pc.fill_null(pc.equal(rows["row"], row), fill_value=False)
    )
    lines = rows.filter(pc.and_(pc.equal(rows["file"], file), at_row)).to_pylist()
    return lines[0] if lines else {}
