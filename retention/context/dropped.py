"""Dropped streams: the run that dropped each, and the refusal of operations that need their messages."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.context.run_files import REMOVED, undo_location
from retention.core.dropped import StreamDrop
from retention.core.units import format_instant
from retention.errors import RefusedError
from retention.history.runs import history_of
from retention.storage import files


def dropped_of(opened: OpenedStream) -> StreamDrop | None:
    """The drop of a stream; None: it is not dropped.

    Raises:
        DamagedError: its log or a record of the run history cannot be read.
    """
    at_ns = opened.table.lifetime().dropped_ns
    if at_ns is None:
        return None
    run = history_of(opened.warehouse, opened.name).last_drop()
    is_kept = run and files.length(undo_location(opened, run, REMOVED)) is not None
    return StreamDrop(at_ns, run if is_kept else None)


def refuse_dropped(opened: OpenedStream, instead: str) -> None:
    """Refuse an operation that needs the messages of a dropped stream, and would otherwise create a new table.

    Args:
        opened: the stream.
        instead: the remedy besides restoring it.

    Raises:
        RefusedError: it is dropped.
    """
    dropped = dropped_of(opened)
    if dropped is not None:
        back = f"`retention undo {dropped.run}` restores it, or " if dropped.run else ""
        raise RefusedError(
            f"{opened.name}: was dropped at {format_instant(dropped.at_ns)}; nothing was changed; {back}{instead}"
        )
