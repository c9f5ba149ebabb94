"""The records of what a run removes and adds: written before its commit, read to undo it and as evidence."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import pyarrow as pa

from retention.apply.record_files import RecordFile, content_of, refusing_undecodable, verified
from retention.context.context import OpenedStream
from retention.context.run_files import RANGES, SUFFIX, directory_of, undo_location
from retention.core.record_tables import check_columns, check_file_records, check_ranges
from retention.core.table_requirements import AssertClaims
from retention.core.vector_paths import all_stored
from retention.errors import DamagedError, RefusedError
from retention.history.runs import history_of
from retention.ports import Snapshot
from retention.schemas.files import FILE_STATS
from retention.schemas.runs import RUN_RANGES
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.claims import Claims


def keep_for_undo(
    opened: OpenedStream, run: str, removed: pa.Table, added: pa.Table, ranges: Iterable[pa.Table]
) -> None:
    """Record, before a run commits, the files that it removes and adds.

    Args:
        opened: the stream.
        run: the run's name.
        removed: the files that it removes, shape `FILE_STATS`; recorded with all their columns.
        added: the files that it adds, likewise.
        ranges: the messages that it removes from files, in batches; shape `RUN_RANGES`.
    """
    records: dict[str, tuple[pa.Schema, Iterable[pa.Table]]] = {
        "removed": (FILE_STATS, [removed]),
        "added": (FILE_STATS, [added]),
        RANGES: (RUN_RANGES, ranges),
    }
    contents = {f"{run}.{name}{SUFFIX}": content_of(*of) for name, of in records.items()}
    files.replace_all(directory_of(opened), contents)
    reached(Step.UNDO_KEPT)


def read_record(opened: OpenedStream, run: str, name: str) -> pa.Table:
    """The files that a run removed (`removed`) or added (`added`), shape `FILE_STATS`.

    Raises:
        RefusedError: the record is gone.
        DamagedError: it differs from what was written.
    """
    location = undo_location(opened, run, name)
    record = verified(location, run, partial(check_columns, schema=FILE_STATS))
    if record is None:
        if opened.store.find_commit(run) is None:
            raise RefusedError(
                f"{location}: the record of the files of run {run} no longer exists, nor its commit in the log of "
                f"{opened.name}: reclaim deletes both after the grace period, or the table was restored from an "
                "earlier copy, so there is nothing to undo; nothing was changed; restore messages from an archive or a "
                "backup"
            )
        raise RefusedError(
            f"{location}: the record of the files of run {run} no longer exists (reclaim deletes it after the grace "
            "period), so the run cannot be undone; nothing was changed; restore messages from an archive or a backup"
        )
    together = pa.concat_tables([FILE_STATS.empty_table(), *record.tables()])
    with refusing_undecodable(location, run):
        check_file_records(together, FILE_STATS)
    return together


def read_ranges(opened: OpenedStream, run: str) -> RecordFile:
    """The exact messages that a run removed from files; tables of the shape `RUN_RANGES`.

    Raises:
        RefusedError: there is no such record; the sentence says whether one ever existed.
        DamagedError: it differs from what was written.
    """
    location = undo_location(opened, run, RANGES)
    record = verified(location, run, partial(check_ranges, schema=RUN_RANGES))
    if record is not None:
        return record
    intent = history_of(opened.warehouse, opened.name).begun(run)
    if intent is not None and intent.names_initiator:
        raise RefusedError(
            f"{location}: the record of the sequences that run {run} removed no longer exists; restore it from a copy "
            "if there is one"
        )
    raise RefusedError(
        f"{opened.name}: run {run} kept no record of the sequences that it removed: it removed none, or an earlier "
        "version of this program, which recorded only whole files, made it"
    )


def find_ranges(opened: OpenedStream, run: str) -> RecordFile | None:
    """The messages that a run removed, as `read_ranges`; None: the run kept no record of them, or it is gone.

    Raises:
        DamagedError: the record differs from what was written.
    """
    with suppress(RefusedError):
        return read_ranges(opened, run)
    return None


def kept_runs(opened: OpenedStream) -> dict[str, list[str]]:
    """Run → the names of its existing records of files (`removed`, `added`); the oldest run first."""
    runs: dict[str, list[str]] = {}
    for file in files.names(directory_of(opened)):
        run, _, name = file.removesuffix(SUFFIX).rpartition(".")
        if file.endswith(SUFFIX) and run:
            runs.setdefault(run, []).append(name)
    return runs


def refuse_claimed(opened: OpenedStream, snapshot: Snapshot, back: pa.Table) -> AssertClaims:
    """Refuse to restore files that are being deleted; return the requirement that none is claimed until the commit.

    Args:
        opened: the stream.
        snapshot: the table to which the files are restored; claims are read after it was opened.
        back: the files, with a column `path`.

    Raises:
        RefusedError: a reclaim has claimed one of them.
    """
    claimed = Claims(opened.layout).claimed()
    taken = sorted(claimed.intersection(all_stored(back["path"].to_pylist())))
    if taken:
        raise RefusedError(
            f"{opened.name}: a reclaim is deleting {taken[0]}, whose grace period is over; nothing was changed; "
            "restore messages from an archive or a backup"
        )
    return AssertClaims(snapshot.counters.claims)


def is_in_force(opened: OpenedStream, run: str, snapshot: Snapshot) -> bool | None:
    """Whether a table is as a run would have left it; None: its files do not show it.

    File names are never reused. A live file that only the run's commit can have added shows that it committed; a live
    file that it would have removed shows that it did not, or was undone.

    Args:
        opened: the stream.
        run: its run.
        snapshot: the current table.
    """
    live = set(snapshot.files["path"].to_pylist())
    if live & _paths(opened, run, "added"):
        return True
    if live & _paths(opened, run, "removed"):
        return False
    return None


def _paths(opened: OpenedStream, run: str, name: str) -> set[str]:
    """The files in one record of a run; empty if it is gone or damaged."""
    with suppress(RefusedError, DamagedError):
        return set(read_record(opened, run, name)["path"].to_pylist())
    return set()
