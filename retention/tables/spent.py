"""Records of runs on a table that `history` no longer keeps: outcomes, evidence, and files changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from retention.apply.reclaim.report import Amount
from retention.core.units import INT64_MAX
from retention.history.kinds import TableUndone
from retention.history.spent import spent_runs
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.tables.evidence import evidence_location
from retention.tables.opened import OpenedTable
from retention.tables.records import location_of


def spent_of(table: OpenedTable, grace_ns: int, kept: Collection[str]) -> list[str]:
    """The runs older than the configured history, and beyond any undo, the oldest first.

    Args:
        table: the table.
        grace_ns: the grace of its removed files, nanoseconds.
        kept: the passes with removed files that exist.
    """
    kept_ns = max(table.settings.history, grace_ns)
    if kept_ns >= INT64_MAX:
        return []
    history = table.history
    names = history.finished()
    spent = spent_runs(names, history.done, kept, table.clock() - kept_ns)
    # Without its undo, a pass would look as if it could be undone.
    remaining = {*names} - {*spent}
    return [
        run
        for run in spent
        if not (isinstance(undo := history.done(run), TableUndone) and undo.undoes in remaining)
    ]


def records_of(table: OpenedTable, runs: Sequence[str]) -> Amount:
    """The existing records of runs."""
    history = table.history
    places = [
        place
        for run in runs
        for place in (
            history.begun_location(run),
            history.done_location(run),
            *_of_files(table, run),
        )
    ]
    lengths = [length for length in files.lengths(places) if length is not None]
    return Amount(len(lengths), sum(lengths))


def forget(table: OpenedTable, runs: Iterable[str]) -> None:
    """Delete the records of runs, and what is left of runs that have none, as a killed process leaves it."""
    history = table.history
    history.forget(runs)
    known = {*history.finished(), *history.unfinished()}
    for directory in {place.rpartition("/")[0] for place in _of_files(table, "")}:
        written = (name.removesuffix(".parquet") for name in files.names(directory))
        files.delete(files.join(directory, f"{run}.parquet") for run in written if run not in known)
    reached(Step.RECORDS_DELETED)


def _of_files(table: OpenedTable, run: str) -> tuple[str, str]:
    return location_of(table, run), evidence_location(table, run)
