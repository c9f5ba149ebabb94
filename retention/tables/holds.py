"""Legal holds of a table in place: placed, released, expired, and read by runs that remove rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from retention.config.table_types import format_column
from retention.core.table_policy import Column, TableColumns
from retention.delta.schema import Leaf, leaves
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import BusyError, RefusedError, StalePlanError, StorageError, UsageError
from retention.history.initiator import initiator
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.holds import (
    Hold,
    HoldEnd,
    HoldRecords,
    TimeOfRows,
    configured,
    listed_holds,
)
from retention.stores.ledger import HoldsLedger, check_ledger, ledger_home
from retention.tables.access import access_of
from retention.tables.bounds import leaf_of, times_of
from retention.tables.committing import committing_runs
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.recorded import maintained, removing
from retention.tables.wanted_key import parse_key, scalar_of

WAIT_S = 10.0
"""The longest wait for a run that is committing, in seconds, unless the caller waits longer."""
_POLL_S = 0.05
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableHoldRecords:
    """The records of the legal holds of a table; a second list of their names tells when one is missing."""

    table: OpenedTable

    def all(self) -> list[Hold]:
        """All legal holds, in the order in which they were placed, including those that ended.

        Raises:
            DamagedError: a record is missing, or cannot be read.
            StorageError: the storage failed.
        """
        listed = files.names(self._directory)
        missing = sorted({*listed} - self._records.names())
        if missing:
            raise self._records.missing(missing[0])
        return self._records.all()

    def in_effect(self) -> tuple[Hold, ...]:
        """The legal holds that no record ends, in the order in which they were placed, then those of the configuration.

        Raises:
            DamagedError, StorageError: as `all`.
        """
        recorded = [hold for hold in self.all() if hold.end is None]
        names = self._records.names() if self.table.holds else set[str]()
        pending = (replace(hold, line="pending") for hold in self._only_in_ledger())
        return (*listed_holds(recorded, names, self._written, self.table.clock()), *pending)

    def missing(self) -> list[str]:
        """The names of the records that only the ledger has."""
        return [] if self._ledger is None else self._ledger.missing()

    def restore(self) -> None:
        """Place the legal holds that only the ledger has, and copy there those that it lacks.

        Raises:
            RefusedError: the place is not the warehouse's ledger.
            DamagedError, StorageError: a record cannot be read, or the ledger cannot be reached.
        """
        table = self.table
        if self._ledger is None or table.ledger is None:
            return
        check_ledger(table.ledger, table.warehouse)
        if restored := self._ledger.complete():
            self._name()
            _log.warning(
                "%s: placed what only the ledger has of legal holds, as after a restore from a backup: %s",
                table.name,
                ", ".join(restored),
            )

    @property
    def _ledger(self) -> HoldsLedger | None:
        table = self.table
        if table.ledger is None:
            return None
        home = ledger_home(table.ledger, "tables", table.name)
        return HoldsLedger(HoldRecords(home, table.name), self._records)

    def _only_in_ledger(self) -> list[Hold]:
        """The legal holds that only the ledger has; that it cannot be reached is logged, and runs that remove fail."""
        try:
            return [] if self._ledger is None else self._ledger.missing_holds()
        except StorageError as error:
            _log.warning(
                "%s: legal holds that only the ledger has are unknown, and nothing is removed until it can be read: %s",
                self.table.name,
                error,
            )
            return []

    @property
    def _written(self) -> list[Hold]:
        """The legal holds that the configuration has."""
        table, columns = self.table, self.table.policy.columns
        column = "" if columns.time is None else format_column(columns.time)
        time_of_rows = TimeOfRows(column=column, unit=columns.unit, zone=columns.zone)
        return [
            Hold(
                table.name,
                each.id,
                each.reason,
                from_ns=each.since,
                to_ns=each.before,
                until_ns=each.until,
                owner=each.owner,
                at_ns=table.clock(),
                values=None if each.key is None else {k: _plain(v) for k, v in each.key.items()},
                time=None if each.since is None and each.before is None else time_of_rows,
            )
            for each in table.holds
        ]

    def place_written(self) -> None:
        """Record the legal holds of ledger and configuration that no record has yet, under the maintenance lease.

        Raises:
            RefusedError, DamagedError, StorageError: as `restore`.
        """
        self.restore()
        for hold in self.in_effect() if self.table.holds else ():
            if hold.line == "pending":
                self.place(configured(hold, initiator(), self.table.file))

    def has(self, hold_id: str) -> bool:
        """Whether a legal hold was placed on the table, also one that ended."""
        return self._records.has(hold_id)

    def place(self, hold: Hold) -> None:
        """Record a legal hold, first in the ledger."""
        self.restore()
        if self._ledger is not None:
            self._ledger.copies.place(hold)
        self._records.place(hold)
        self._name()

    def end(self, hold: Hold, end: HoldEnd) -> None:
        """Record the end of a legal hold, first in the ledger."""
        self.restore()
        if self._ledger is not None:
            self._ledger.copies.end(hold, end)
        self._records.end(hold, end)
        self._name()

    @property
    def _records(self) -> HoldRecords:
        return HoldRecords(self.table.home, self.table.name)

    @property
    def _directory(self) -> str:
        return files.join(self.table.home, "hold_names")

    def _name(self) -> None:
        """List the records that are not listed yet, also one that a killed process left."""
        files.make_directory(self._directory)
        for name in sorted(self._records.names() - {*files.names(self._directory)}):
            files.replace(files.join(self._directory, name), b"")
        reached(Step.HOLD_NAMED)


def hold_of_rows(table: OpenedTable, hold: Hold, key: Mapping[str, Any] | None) -> Hold:
    """A legal hold with the columns of the table that it reads.

    Args:
        table: the table.
        hold: the legal hold, by times.
        key: column → the value of covered rows, None: any values.

    Raises:
        UsageError: there is no such column, or a value has another type.
        RefusedError: it covers sequences or subjects; or times, while no column of the table has them.
    """
    if hold.subject is not None or hold.ranges is not None:
        raise RefusedError(
            f"{table.name}: a table in place takes legal holds by --key, and by times with --from and --to, because "
            "its rows have neither subjects nor sequences; nothing was changed"
        )
    snapshot = access_of(table).read(table)
    values = None if key is None else texts_of_key(table, snapshot, key)
    if hold.from_ns is None and hold.to_ns is None:
        return replace(hold, values=values)
    columns = table.policy.columns
    if columns.time is None:
        raise RefusedError(
            f"{table.name}: the configuration names no `time` column of this table, so that no row can be held by its "
            "time; nothing was changed; name that column, or hold rows by --key"
        )
    times_of(snapshot, table.policy)
    named = format_column(columns.time)
    return replace(
        hold, values=values, time=TimeOfRows(column=named, unit=columns.unit, zone=columns.zone)
    )


def parse_held_key(table: OpenedTable, text: str) -> dict[str, str]:
    """The values of rows to hold, `tenant=a,user_id=7`, by any columns of the table.

    Raises:
        UsageError: the text is not of this form.
        RetentionError: the table cannot be read.
    """
    columns = dict.fromkeys(_columns(access_of(table).read(table)).values())
    return parse_key(text, TableColumns(key=tuple(columns)))


def place_hold(table: OpenedTable, hold: Hold) -> Hold:
    """Place a legal hold: no run that commits after the return removes a row that it covers, but those of `after_runs`.

    Raises:
        StorageError: the storage failed.
    """
    TableHoldRecords(table).place(hold)
    until = time.monotonic() + max(table.wait_s, WAIT_S)
    while runs := committing_runs(table):
        try:
            with maintained(replace(table, wait_s=0.0)):
                return hold
        except BusyError:
            if time.monotonic() >= until:
                return replace(hold, after_runs=tuple(runs))
        time.sleep(_POLL_S)
    return hold


def end_hold(
    table: OpenedTable, hold: Hold, kind: Literal["released", "expired"], reason: str
) -> HoldEnd:
    """Record the end of a legal hold."""
    end = HoldEnd(kind, table.clock(), reason, initiator())
    TableHoldRecords(table).end(hold, end)
    return end


def expire_holds(table: OpenedTable) -> list[str]:
    """Record the end of each legal hold whose `until` has passed, before a run that removes plans; returns their ids.

    Raises:
        DamagedError, StorageError: as `TableHoldRecords.all`.
        RetentionError: as `recorded.removing`.
    """
    now_ns = table.clock()
    if not any(hold.is_due(now_ns) for hold in TableHoldRecords(table).in_effect()):
        return []
    with removing(table):
        due = [hold for hold in TableHoldRecords(table).in_effect() if hold.is_due(now_ns)]
        for hold in due:
            end_hold(table, hold, "expired", "its time was over")
    return [hold.id for hold in due]


def refuse_changed_holds(table: OpenedTable, plan: TablePlan) -> None:
    """Refuse a plan that was made under other legal holds than those in effect.

    Raises:
        StalePlanError: one was placed, released, or has expired since.
        DamagedError, StorageError: as `TableHoldRecords.all`.
    """
    if tuple(hold.id for hold in TableHoldRecords(table).in_effect()) != plan.holds:
        raise StalePlanError(
            f"{table.name}: a legal hold was placed or released since the plan was made; nothing was changed; "
            "plan again"
        )


def _plain(value: object) -> str:
    """A value of a configuration as text that a column's type reads."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts_of_key(
    table: OpenedTable, snapshot: DeltaSnapshot, key: Mapping[str, Any]
) -> dict[str, str]:
    """Column of the table → a value as text that the column's type reads again.

    Raises:
        UsageError: the table has no such column, or a value is none of its type, or no text.
    """
    [texts] = texts_of_keys(table, snapshot, [key])
    return texts


def texts_of_keys(
    table: OpenedTable, snapshot: DeltaSnapshot, keys: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, str]]:
    """The texts of several keys, as `texts_of_key`."""
    columns = _columns(snapshot)
    leaf_by_name = {name: leaf_of(snapshot, column) for name, column in columns.items()}
    for key in keys:
        unknown = [name for name in key if name not in columns]
        if unknown or not key:
            raise UsageError(
                f"{table.name}: the table has no column {', '.join(unknown) or 'without a name'} with single values; "
                f"it has {', '.join(map(format_column, dict.fromkeys(columns.values())))}; nothing was changed"
            )
        yield {
            format_column(columns[name]): _text_of(table, name, leaf_by_name[name], value)
            for name, value in key.items()
        }


def _text_of(table: OpenedTable, name: str, leaf: Leaf, value: object) -> str:
    try:
        text: str = scalar_of(table.name, leaf, value).cast(pa.string()).as_py()
    except pa.ArrowException as error:
        raise UsageError(
            f"{table.name}: {name} has values that are no text, by which no row can be named; nothing was changed; "
            "name another column"
        ) from error
    return text


def _columns(snapshot: DeltaSnapshot) -> dict[str, Column]:
    """The columns of a table with single values by each of their names: as the configuration has it, and plain."""
    paths = [leaf.path for leaf in leaves(snapshot.metadata) if isinstance(leaf.type, str)]
    plain = {".".join(path): path for path in paths}
    return plain | {format_column(path): path for path in paths}
