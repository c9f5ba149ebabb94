"""Undoing a run within its grace period: exactly the files it removed come back, and its copies go."""

from __future__ import annotations

import pyarrow as pa

from retention import files
from retention.errors import RefusedError, UsageError
from retention.history import History, history_of
from retention.opened import OpenedStream
from retention.ports import Swap
from retention.stores.lease import lease
from schemas.files import LOGGED_FILES


def keep_for_undo(opened: OpenedStream, run: str, removed: pa.Table, added: pa.Table) -> None:
    """Remember which files a run removes and adds (`FILE_STATS`), before it commits."""
    for name, table in (("removed", removed), ("added", added)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        files.replace(undo_location(opened, run, name), sink.getvalue().to_pybytes())


def undo_location(opened: OpenedStream, run: str, name: str) -> str:
    """Where a run's `removed` or `added` files are remembered."""
    return files.join(opened.root, "_retention", "reports", f"{run}.{name}.arrow")


def undo_run(opened: OpenedStream, run: str, undo: str) -> dict[str, object]:
    """Bring back what a run removed, as one commit; sequences and counters stay as they are.

    Args:
        opened: the stream.
        run: the run to undo.
        undo: the name of the run that undoes it.

    Returns:
        The record of the undoing run.

    Raises:
        UsageError: the stream has no such run, or it changed nothing.
        RefusedError: a later run touched the same segments.
        VerificationError: a removed file is gone or changed: the grace period is over.
    """
    history = history_of(opened.warehouse, opened.name)
    outcome = _undoable(opened, history, run)
    with lease(opened.root, "maintenance", opened.clock):
        removed, added = (_remembered(opened, run, name) for name in ("removed", "added"))
        snapshot = opened.store.snapshot()
        _check_untouched(opened, history, run, removed)
        record = {
            "kind": "undo",
            "undoes": run,
            "as_of_ns": outcome["as_of_ns"],
            "restored_messages": outcome["removed_messages"],
            "restored_bytes": outcome["removed_bytes"],
        }
        keep_for_undo(opened, undo, added, removed)
        history.begin(undo, record | {"status": "begun"})
        swap = Swap(
            remove=added.select(LOGGED_FILES.names),
            add=removed,
            metadata={"run": undo, "undoes": run},
        )
        version = opened.store.commit(swap, snapshot)
        history.finish(undo, record | {"status": "done", "version_after": version})
    return {"run": undo, "stream": opened.name, **record, "version_after": version}


def _undoable(opened: OpenedStream, history: History, run: str) -> dict[str, object]:
    outcome = history.done(run)
    if outcome is None or outcome.get("kind") != "apply" or outcome.get("status") != "done":
        raise UsageError(
            f"{opened.name}: there is no finished run {run} to undo; `retention history` lists the runs"
        )
    if not outcome["removed_messages"]:
        raise UsageError(f"{opened.name}: run {run} removed nothing, so there is nothing to undo")
    return outcome


def _check_untouched(opened: OpenedStream, history: History, run: str, removed: pa.Table) -> None:
    """Refuse if a run after `run` removed or rewrote files of the same segments."""
    segments = {"partition", "segment"}
    mine = removed.select(sorted(segments))
    for later in history.outcomes():
        if later["run"] <= run:
            return
        if later.get("status") != "done" or not _changed_files(later):
            continue
        theirs = _remembered(opened, later["run"], "removed").select(sorted(segments))
        if mine.join(theirs, keys=sorted(segments), join_type="left semi").num_rows:
            raise RefusedError(
                f"{opened.name}: run {later['run']} touched the same segments after run {run}; undo that one first"
            )


def _changed_files(outcome: dict[str, object]) -> bool:
    return bool(outcome.get("removed_messages") or outcome.get("restored_messages"))


def _remembered(opened: OpenedStream, run: str, name: str) -> pa.Table:
    location = undo_location(opened, run, name)
    content = files.read_bytes(location)
    if content is None:
        raise RefusedError(
            f"{location}: the record of the files of run {run} is gone, so the run cannot be undone; restore the "
            "record from a copy if there is one"
        )
    return pa.ipc.open_file(pa.BufferReader(content)).read_all()
