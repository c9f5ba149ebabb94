"""Leftovers of killed processes in a stream: files that nothing accounts for, and runs without an outcome."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from retention.apply.undo_records import kept_runs, read_record
from retention.context.context import OpenedStream
from retention.context.run_files import REMOVED
from retention.core.subjects import path_name
from retention.core.vector_paths import all_stored, stored_files, vector_place
from retention.erasure.keyed_hash import secrets_of
from retention.history.record import ABANDONED
from retention.history.runs import history_of
from retention.planners.scratch import DIRECTORY
from retention.storage import files
from retention.stores import consumer_table, hold_listing, offset_table
from retention.stores.layout import Layout


@dataclass(frozen=True)
class Orphan:
    """A file or run left by a killed process, or still in use by a live one."""

    location: str
    what: str
    """One phrase: the kind of leftover, and why nothing needs it."""
    since_ns: int
    """The instant of its last write, nanoseconds since the epoch; a recent one may belong to a run in progress."""
    path: str | None
    """The path in the table, if it is a data file."""


def orphans(opened: OpenedStream) -> list[Orphan]:
    """List the files on disk that nothing accounts for; nothing is changed, and no data file is opened.

    Three kinds are accounted for: files that a commit names (live, or removed and within the grace period; also by the
    records of its run, because an erasure leaves no older entry of the log), files that describe these, and undo
    records of runs with an outcome other than `abandoned`. Moves after a commit, which the store finishes at the next
    opening, leave no orphans.

    Raises:
        DamagedError: the log cannot be read, or is missing.
    """
    layout = opened.layout
    # Without the log, every data file would look as if no commit named it.
    opened.table.exists()
    unnamed = _without_removed(opened, opened.table_format.orphaned_files(layout))
    leftovers = [
        *((place, "data file that no commit names") for place in unnamed),
        *_unfinished_writes(opened, layout),
        *_counts_of_nothing(layout, unnamed),
        *_of_runs(opened),
        *_exchanged(layout),
    ]
    return [
        Orphan(place, what, _written_ns(place), unnamed.get(place)) for place, what in leftovers
    ]


def _without_removed(opened: OpenedStream, unnamed: dict[str, str]) -> dict[str, str]:
    """The files that no record of a run's removed files names either."""
    runs = [run for run, names in kept_runs(opened).items() if REMOVED in names] if unnamed else []
    removed: set[str] = set()
    for run in runs:
        removed.update(all_stored(read_record(opened, run, REMOVED)["path"].to_pylist()))
    return {place: path for place, path in unnamed.items() if path not in removed}


def _unfinished_writes(opened: OpenedStream, layout: Layout) -> Iterator[tuple[str, str]]:
    """Temporary files next to their targets: a target appears there complete, or not at all."""
    history = history_of(opened.warehouse, opened.name).directory
    records = (consumer_table.DIRECTORY, offset_table.DIRECTORY, hold_listing.DIRECTORY)
    beside = (files.join(opened.root, name) for name in records)
    shared = (secrets_of(opened.warehouse), *_archive(opened))
    for directory in (layout.messages, layout.engine_path(), *beside, history, *shared):
        for path in files.walk(directory):
            name = path.rpartition("/")[2]
            if name.endswith(".tmp"):
                yield files.join(directory, path), "write that never ended"


def _archive(opened: OpenedStream) -> list[str]:
    """The directory of a stream's local archive, if it has one; an object store leaves no partial files."""
    place = opened.config.archive
    if place is None or files.is_remote(place):
        return []
    return [files.join(place, path_name(opened.name))]


def _counts_of_nothing(layout: Layout, unnamed: Container[str]) -> Iterator[tuple[str, str]]:
    """Subject counts of data files that do not exist, or are orphans themselves."""
    places = [layout.messages, layout.engine_path("staging"), layout.engine_path("trash")]
    there = {
        path
        for place in places
        for path in files.walk(place)
        if files.join(place, path) not in unnamed
    }
    for path in files.walk(layout.engine_path("subjects")):
        is_digest = path.endswith(".parquet") or vector_place(path) is not None
        if is_digest and not there.issuperset(stored_files(path)):
            yield layout.engine_path("subjects", path), "subject counts of no data file"


def _exchanged(layout: Layout) -> Iterator[tuple[str, str]]:
    for path in files.walk(layout.engine_path(DIRECTORY)):
        yield layout.engine_path(DIRECTORY, path), "work of a pass or an append that never ended"


def _of_runs(opened: OpenedStream) -> Iterator[tuple[str, str]]:
    history = history_of(opened.warehouse, opened.name)
    unfinished = set(history.unfinished())
    for run in sorted(unfinished):
        yield history.begun_location(run), "run without an outcome; the next run writes it"
    reports = files.join(opened.root, "_retention", "reports")
    for name in files.names(reports):
        run = name.removesuffix(".arrow").rpartition(".")[0]
        if run in unfinished:
            continue
        outcome = history.done(run)
        if outcome is None or outcome.status == ABANDONED:
            yield files.join(reports, name), "undo record of a run that committed nothing"


def _written_ns(place: str) -> int:
    try:
        return files.stat(place)[1] * 1_000_000
    except FileNotFoundError:
        return 0
