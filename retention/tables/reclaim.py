"""Disk space of a table in place: the files that our own passes removed are deleted once their grace is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from retention.apply.reclaim.report import Amount
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.history.kinds import ClaimedFiles, TableReclaimed
from retention.history.record import DONE
from retention.tables.access import access_of
from retention.tables.committing import committing
from retention.tables.dead_files import DeadFiles, amount_of
from retention.tables.erasure_run import go_on_with_erasures
from retention.tables.held_files import not_held
from retention.tables.holds import TableHoldRecords, expire_holds
from retention.tables.opened import OpenedTable
from retention.tables.recorded import removing
from retention.tables.spent import forget, records_of, spent_of

_REMOVED = "removed"


@dataclass(frozen=True, repr=False)
class TableReclaim(Displayed):
    """The outcome of a reclaim of one table."""

    table: str
    location: str
    grace_ns: int
    """The longer of the configured grace and the owner's retention of deleted files, nanoseconds."""
    going: Amount = field(default_factory=Amount)
    """The files deleted, or to be deleted."""
    staying: Mapping[str, Amount] = field(default_factory=dict)
    """Hindrance → files that our passes removed and that are kept."""
    run: str | None = None
    """The run that deleted files; None: no run did."""
    is_done: bool = False
    history: Amount = field(default_factory=Amount)
    """The records of runs deleted, or to be deleted, because `history` no longer keeps them."""

    def as_json(self) -> JsonObject:
        """The outcome's entry in the JSON output."""
        return {
            "table": self.table,
            "location": self.location,
            "run": self.run,
            "done": self.is_done,
            "grace_ns": self.grace_ns,
            **self.going.as_json(),
            "staying": {name: amount.as_json() for name, amount in self.staying.items()},
            "history": self.history.as_json(),
        }


def plan_table_reclaim(table: OpenedTable) -> TableReclaim:
    """Report what a reclaim would delete now; nothing is changed.

    Raises:
        RetentionError: as `reclaim_table`.
    """
    dead = not_held(table, access_of(table).dead_files(table))
    return _report(table, dead, _spent(table, dead))


def reclaim_table(table: OpenedTable) -> TableReclaim:
    """Delete the files that our passes removed and whose grace is over; it cannot be undone.

    Raises:
        BusyError: another run is in progress.
        RefusedError: a person has paused removals.
        UsageError: there is no table.
        DamagedError, StorageError: the log, or the record of a run, cannot be read.
    """
    access = access_of(table)
    expire_holds(table)
    with removing(table):
        run = table.history.name_run(table.clock())
        TableHoldRecords(table).place_written()
        with committing(table, run):
            dead = not_held(table, access.dead_files(table))
            spent = _spent(table, dead)
            report = _report(table, dead, spent)
            if dead.going:
                claimed = ClaimedFiles(files=report.going.files, bytes=report.going.bytes)
                intent = TableReclaimed(
                    run=run,
                    as_of_ns=table.clock(),
                    stream=table.name,
                    location=table.location,
                    reclaimed={_REMOVED: claimed},
                )
                table.history.begin(intent)
                access.delete_dead(dead.going)
                table.history.finish(intent.updated(status=DONE))
            forget(table, spent)
    go_on_with_erasures(table)
    return replace(report, run=run if dead.going else None, is_done=True)


def _report(table: OpenedTable, dead: DeadFiles, spent: Sequence[str]) -> TableReclaim:
    """The report of a reclaim that is not carried out."""
    going, history = amount_of(dead.going), records_of(table, spent)
    return TableReclaim(
        table.name, table.location, dead.grace_ns, going, dead.staying, history=history
    )


def _spent(table: OpenedTable, dead: DeadFiles) -> list[str]:
    """The runs whose records `history` no longer keeps, once the files are deleted."""
    return spent_of(table, dead.grace_ns, dead.passes)
