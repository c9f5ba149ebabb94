"""Whether a stream is dropped, and by which run."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.core.dropped import Dropped
from retention.history.runs import history_of


def dropped_of(opened: OpenedStream) -> Dropped | None:
    """The drop of a stream; None: it is not dropped.

    Raises:
        DamagedError: its log or a record of the run history cannot be read.
    """
    at_ns = opened.store.dropped_ns()
    if at_ns is None:
        return None
    return Dropped(at_ns, history_of(opened.warehouse, opened.name).last_drop())
