"""Whether a stream is dropped, and by which run."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.context.run_files import REMOVED, undo_location
from retention.core.dropped import Dropped
from retention.history.runs import history_of
from retention.storage import files


def dropped_of(opened: OpenedStream) -> Dropped | None:
    """The drop of a stream; None: it is not dropped.

    Raises:
        DamagedError: its log or a record of the run history cannot be read.
    """
    at_ns = opened.store.dropped_ns()
    if at_ns is None:
        return None
    run = history_of(opened.warehouse, opened.name).last_drop()
    is_kept = run and files.length(undo_location(opened, run, REMOVED)) is not None
    return Dropped(at_ns, run if is_kept else None)
