"""One run on a table in place in detail: the files that it changed, its operator, and whether it can be undone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.units import format_instant, format_size
from retention.errors import DamagedError, RefusedError, UsageError
from retention.history.initiator import initiator_text
from retention.history.kinds import TableApplied, TableUndone
from retention.history.record import RunRecord
from retention.tables.evidence_extent import EvidenceSummary, summary_of
from retention.tables.opened import OpenedTable
from retention.tables.records import ChangedFile, read_changes
from retention.tables.undo import undoable


@dataclass(frozen=True, repr=False)
class TableRunDetails(Displayed):
    """A run on a table, by its records."""

    outcome: RunRecord
    changed: tuple[ChangedFile, ...] = ()
    evidence: EvidenceSummary | None = None
    """The extent of its evidence; None: it recorded neither keys nor times."""
    hindrance: str | None = None
    """The sentence that refuses its undo now; None: it can be undone, or removed nothing."""

    @property
    def has_removed(self) -> bool:
        """Whether the run removed rows, so that there is something to restore."""
        return isinstance(self.outcome, TableApplied) and self.outcome.is_done

    def notes(self) -> Iterator[str]:
        """All non-numeric facts about the run, a line each."""
        outcome = self.outcome
        yield f"as of {format_instant(outcome.as_of_ns)}"
        yield f"run by {initiator_text(outcome.who)}"
        if isinstance(outcome, TableApplied):
            yield from (f"removed {rows:,} by {limit}" for limit, rows in outcome.by_rule.items())
            if outcome.reason is not None:
                yield f"refusals were lifted, because: {outcome.reason}"
        if isinstance(outcome, TableUndone):
            yield f"undid run {outcome.undoes}"
        if self.has_removed:
            yield (
                self.hindrance
                or "`retention undo` restores the rows, as long as the removed files are there"
            )

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Each changed file: its path, what became of it, its removed rows, its bytes, and the limits."""
        for change in self.changed:
            removed = _removed(change)
            limits = ", ".join(
                limit if number is None else f"{limit} {number:,}"
                for limit, number in removed.items()
            )
            numbers = [number for number in removed.values() if number is not None]
            all_rows = "all" if len(numbers) < len(removed) else f"{sum(numbers):,}"
            size = format_size(int(change.before["size"]))
            yield unquote(change.before["path"]), action_of(change), all_rows, size, limits

    def display_fields(self) -> JsonObject:
        """The run for people: its numbers, its notes, and the files that it changed."""
        names = ("file", "action", "removed_rows", "size", "limits")
        return {
            **self.outcome.display_fields(),
            "stream": None,
            "notes": list(self.notes()),
            "by_file": [dict(zip(names, row, strict=True)) for row in self.rows()],
        }

    def as_json(self) -> JsonObject:
        """The run as JSON values: the fields of its record, and the derived facts."""
        recovery: dict[str, Any] | None = None
        if self.has_removed:
            recovery = {"possible": self.hindrance is None, "sentence": self.hindrance or ""}
        return {
            **self.outcome.as_json(),
            "recovery": recovery,
            "evidence": None if self.evidence is None else self.evidence.as_json(),
            "by_file": [
                {
                    "path": unquote(change.before["path"]),
                    "bytes": change.before["size"],
                    "action": action_of(change),
                    "removed_rows": _removed(change),
                }
                for change in self.changed
            ],
        }


def table_run_details(table: OpenedTable, run: str) -> TableRunDetails:
    """One run in detail.

    Raises:
        UsageError: there is no such run, or it has no outcome yet.
        DamagedError: a record cannot be read.
    """
    outcome = table.history.done(run)
    if outcome is None:
        raise UsageError(
            f"{run}: the run has no outcome yet; the next run on table {table.name} finds out whether it committed"
        )
    outcome = outcome.updated(stream=table.name)
    if not (isinstance(outcome, TableApplied) and outcome.is_done):
        return TableRunDetails(outcome)
    return TableRunDetails(
        outcome, tuple(read_changes(table, run)), summary_of(table, run), _hindrance(table, run)
    )


def _hindrance(table: OpenedTable, run: str) -> str | None:
    try:
        undoable(table, run)
    except (RefusedError, DamagedError, UsageError) as error:
        return f"it cannot be undone: {error}"
    return None


def _removed(change: ChangedFile) -> dict[str, int | None]:
    """Limit → the rows that it removed from a file; None: all."""
    return {limit: None if rows is None else len(rows) for limit, rows in change.rows.items()}


def action_of(change: ChangedFile) -> str:
    """The word for what became of a changed file."""
    if change.after is None:
        return "dropped"
    return "rewritten" if change.is_copied else "deletion vector"
