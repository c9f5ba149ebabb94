"""Files of tables of a stream that were dropped before its present one: their sequences are other messages."""

from __future__ import annotations

from collections.abc import Iterator

from retention.apply.undo_records import kept_runs, read_record
from retention.context.context import OpenedStream
from retention.context.run_files import REMOVED
from retention.core.vector_paths import data_path
from retention.erasure.copies import Wanted
from retention.history.kinds import Dropped
from retention.history.runs import history_of
from retention.rules.erase import ErasedMessages

_IN_MESSAGES = "partition="


def erased_by_file(opened: OpenedStream, messages: ErasedMessages) -> Wanted:
    """The erased messages by file: in one of a dropped table, those on the subjects, whatever their sequences.

    Raises:
        DamagedError: a record of a run cannot be read.
    """
    dropped = frozenset(_of_dropped_tables(opened))
    return lambda path: messages.in_dropped_tables if path_in_log(path) in dropped else messages


def path_in_log(path: str) -> str:
    """The path of a data file, relative to the stream's directory, as the table's log names it."""
    begin = path.find(_IN_MESSAGES)
    return path[begin:] if begin >= 0 else path


def _of_dropped_tables(opened: OpenedStream) -> Iterator[str]:
    """The paths of all files that runs removed up to the last drop before the present table."""
    history = history_of(opened.warehouse, opened.name)
    drops = sorted(
        record.run
        for record in history.outcomes()
        if isinstance(record, Dropped) and record.is_done and not history.undone_by(record.run)
    )
    # A stream without a table is as its last drop left it.
    before = drops if opened.table.exists() else drops[:-1]
    for run, names in kept_runs(opened).items() if before else ():
        if REMOVED in names and run <= before[-1]:
            yield from map(data_path, read_record(opened, run, REMOVED)["path"].to_pylist())
