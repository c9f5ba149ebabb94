"""Checks of one table in place: its log, the configured columns, its other writers, our runs, and its VACUUM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa

from retention.core.table_policy import Column
from retention.core.units import format_duration
from retention.core.wording import counted
from retention.delta.features import refuse_unsafe
from retention.delta.schema import arrow_type
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import vector_location
from retention.doctor.finding import Finding, findings_of, ok, problem, problem_of_error, warning
from retention.doctor.ledger import check_ledger_of
from retention.doctor.place import check_history_clock
from retention.doctor.runs import check_runs
from retention.history.kinds import TableRun
from retention.history.record import DONE
from retention.rules.tables.matching import policy_of_rows, where_columns
from retention.storage import files
from retention.stores.lease import holder
from retention.tables.access import access_of
from retention.tables.bounds import leaf_of, times_of
from retention.tables.dead_files import owners_kept_ns
from retention.tables.directory.snapshot import DirectorySnapshot
from retention.tables.holds import TableHoldRecords
from retention.tables.opened import OpenedTable
from retention.tables.rivals import refuse_rivals

_INTEGERS = ("byte", "short", "integer", "long")
_NAMED = 3


def check_table(table: OpenedTable) -> Iterator[Finding]:
    """Check one table; an exception in a check becomes its finding, and the other checks continue."""
    try:
        snapshot = access_of(table).read(table)
    except Exception as error:  # a run would have raised it as well
        yield replace(problem_of_error("table", error), table=table.name)
        return
    checks: list[tuple[str, Callable[[OpenedTable, DeltaSnapshot], Iterator[Finding]]]] = [
        ("table", _table),
        ("columns", _columns),
        ("writers", _writers),
        ("grace", _grace),
        ("runs", _runs),
        ("ledger", _ledger),
        ("leftovers", _leftovers),
        ("leases", _leases),
    ]
    for finding in findings_of(checks, table, snapshot):
        yield replace(finding, table=table.name)


def _table(table: OpenedTable, snapshot: DeltaSnapshot) -> Iterator[Finding]:
    refuse_unsafe(snapshot)
    count = counted(snapshot.files.num_rows, "file")
    yield ok("table", f"opens at version {snapshot.version} with {count} in {table.location}")


def _columns(table: OpenedTable, snapshot: DeltaSnapshot) -> Iterator[Finding]:
    columns = table.policy.columns
    times_of(snapshot, table.policy)
    others = [*columns.key, *columns.order, *([columns.size] if columns.size else [])]
    compared = where_columns(table.policy)
    types = {column: leaf_of(snapshot, column).type for column in (*others, *compared)}
    rows = {f"where_{at}": _no_values(types[column]) for at, column in enumerate(compared)}
    policy_of_rows(pa.table(rows), table.policy)
    if columns.size is not None and types[columns.size] not in _INTEGERS:
        yield problem(
            "columns",
            f"size: {'.'.join(columns.size)} has the type {types[columns.size]}, which is no number of bytes",
            "name a column of integers, or leave out `size`",
        )
        return
    timed = [column for column in (columns.time, columns.expires_at) if column is not None]
    yield ok("columns", _named_columns({*timed, *types}))


def _no_values(delta_type: object) -> pa.ChunkedArray:
    return pa.chunked_array([], arrow_type(delta_type) or pa.string())


def _named_columns(columns: set[Column]) -> str:
    if not columns:
        return "the configuration names none"
    return f"{counted(len(columns), 'column')} of the configuration exist with fitting types"


def _writers(table: OpenedTable, snapshot: DeltaSnapshot) -> Iterator[Finding]:
    if not files.is_remote(table.location):
        return
    refuse_rivals(table, snapshot)
    yield ok(
        "writers",
        "exclusive: true says that no other program writes while a run does"
        if table.exclusive
        else "no program of the newest entries can overwrite commits of others",
    )


def _grace(table: OpenedTable, snapshot: DeltaSnapshot) -> Iterator[Finding]:
    if isinstance(snapshot, DirectorySnapshot):
        yield ok("grace", "only `retention reclaim` deletes files that were moved aside")
        return
    kept_ns, grace_ns = owners_kept_ns(snapshot), table.settings.grace_ns
    if kept_ns >= grace_ns:
        yield ok("grace", "the table's VACUUM keeps removed files for at least as long")
        return
    grace = format_duration(grace_ns)
    yield warning(
        "grace",
        f"the table's VACUUM deletes removed files after {format_duration(kept_ns)}, and then the runs that removed "
        f"them cannot be undone, although the grace is {grace}",
        f"set delta.deletedFileRetentionDuration to {grace} or more, or write a shorter grace",
    )


def _runs(table: OpenedTable, snapshot: DeltaSnapshot) -> Iterator[Finding]:
    history = table.history
    yield from check_runs(history, "rows of the table", "the log")
    remedy = "set the clock, or apply with --allow-rewind if that instant lay in the future"
    clock = check_history_clock(history.last_as_of_ns(), table.clock(), remedy)
    if clock is not None:
        yield clock


def _ledger(table: OpenedTable, snapshot: DeltaSnapshot) -> Iterator[Finding]:
    del snapshot
    missing = TableHoldRecords(table).missing
    yield from check_ledger_of(table.ledger, table.warehouse, missing)


def _leftovers(table: OpenedTable, snapshot: DeltaSnapshot) -> Iterator[Finding]:
    """The files that runs staged which did not commit, or of which nothing shows that they did."""
    staged = [
        path
        for record in table.history.outcomes()
        if isinstance(record, TableRun) and record.status != DONE
        for path in record.staged
    ]
    vectors = (vector for vector in snapshot.files["vector"].to_pylist() if vector is not None)
    live = {
        files.join(table.location, unquote(path)) for path in snapshot.files["path"].to_pylist()
    }
    live |= {place for vector in vectors if (place := vector_location(snapshot.root, vector))}
    places = sorted({files.join(table.location, path) for path in staged} - live)
    present = [place for place, length in zip(places, files.lengths(places), strict=True) if length]
    if not present:
        yield ok("leftovers", "no file of an unfinished run is in the table's directory")
        return
    yield warning(
        "leftovers",
        f"{counted(len(present), 'file')} of runs that are not known to have committed: {', '.join(present[:_NAMED])}",
        "they only take up space: VACUUM of the table deletes them, unless one of its versions has them",
    )


def _leases(table: OpenedTable, snapshot: DeltaSnapshot) -> Iterator[Finding]:
    owner = holder(table.home, "maintenance")
    if owner is None:
        yield ok("leases", "no process holds one")
        return
    yield warning(
        "leases",
        f"the maintenance lease is held by {owner}",
        "wait for it, or end that process: its lease is free at once",
    )
