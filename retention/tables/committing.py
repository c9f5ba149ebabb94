"""Records of runs on a table in place that are committing: a legal hold placed meanwhile may come too late for them.

A run writes its record, then reads the legal holds, then commits. A legal hold is recorded first, then looks for such
records. So the run respects the legal hold, or the legal hold names the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from retention.core.spoken_commands import command
from retention.errors import BusyError, CommitUnknownError, StorageError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.tables.opened import OpenedTable

_SUFFIX = ".json"


@contextmanager
def committing(table: OpenedTable, run: str) -> Iterator[None]:
    """Record that a run is committing during the block; one of unknown outcome keeps the record until it is settled."""
    files.make_directory(_directory(table))
    files.replace(_place(table, run), json.dumps({"run": run}).encode())
    reached(Step.TABLE_COMMITTING)
    try:
        yield
    except CommitUnknownError:
        raise
    except Exception:
        _forget(table, [run])
        raise
    # The run is done: a record that cannot be deleted is left to the next run.
    with suppress(StorageError):
        _forget(table, [run])


def refuse_forgotten(table: OpenedTable, run: str) -> None:
    """Refuse a commit whose record others deleted: they took the lease over, and legal holds may have come since.

    Raises:
        BusyError: the record is gone.
    """
    if files.read_bytes(_place(table, run)) is None:
        raise BusyError(
            f"{table.name}: another process settled run {run} while it stood still; nothing was changed; "
            f"{command('apply', table.name)} runs again"
        )


def committing_runs(table: OpenedTable) -> list[str]:
    """The runs that are committing, or were killed before they deleted their record."""
    listed = files.names(_directory(table))
    return sorted(name.removesuffix(_SUFFIX) for name in listed if name.endswith(_SUFFIX))


def forget_committing(table: OpenedTable) -> None:
    """Delete the records of runs that have ended, under the lease and after all runs are settled."""
    _forget(table, committing_runs(table))


def _forget(table: OpenedTable, runs: list[str]) -> None:
    if runs:
        files.delete(_place(table, run) for run in runs)
        reached(Step.TABLE_COMMITTED)


def _directory(table: OpenedTable) -> str:
    return files.join(table.home, "committing")


def _place(table: OpenedTable, run: str) -> str:
    return files.join(_directory(table), f"{run}{_SUFFIX}")
