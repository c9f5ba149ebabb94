"""Settling what interrupted runs left: the table knows whether they committed, and the run history is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.apply.erase import erase_recorded
from retention.apply.undo_records import is_in_force
from retention.context.context import OpenedStream, has_table
from retention.core.run_names import parse_run_name
from retention.history.runs import ABANDONED, UNKNOWN, History
from retention.ports import Snapshot
from retention.storage import files
from retention.stores.layout import Layout
from retention.stores.parquet.adopt import aside


def basis(snapshot: Snapshot) -> dict[str, Any]:
    """The run history's fields for the table on which a run is about to commit."""
    return {"basis": {"table_id": snapshot.table_id, "version": snapshot.version}}


def settle_interrupted(opened: OpenedStream, history: History) -> None:
    """Give every interrupted run its outcome, under the maintenance lease; no live file of the table is touched."""
    for run in history.unfinished():
        # Those of earlier versions do not say who ran them.
        begun = {"who": None} | (history.begun(run) or {})
        if begun.get("repair") == "foreign":
            _settle_moves(opened, history, run, begun)
            continue
        outcome = _outcome(opened, run, begun)
        if outcome["status"] == "done":
            erase_recorded(opened, begun)
        history.finish(run, begun | outcome)


def _settle_moves(
    opened: OpenedStream, history: History, run: str, begun: Mapping[str, Any]
) -> None:
    """Record what a run moved aside, be it a part of what it meant to; the others are where they were."""
    there = set(files.walk(aside(Layout(opened.root, opened.name), run)))
    moved = [file for file in begun["files"] if file["path"] in there]
    status = "done" if moved else ABANDONED
    history.finish(run, {**begun, "status": status, "settled": True, "files": moved})


def _outcome(opened: OpenedStream, run: str, begun: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome of an interrupted run: `done`, `abandoned`, or `unknown`."""
    if not has_table(opened):
        return {"status": UNKNOWN}
    version = opened.store.find_commit(run, _basis_version(begun))
    committed = True if version is not None else _committed(opened, run, begun)
    if committed is None:
        return {"status": UNKNOWN}
    if not committed:
        return {"status": ABANDONED}
    return {"status": "done", "settled": True, "version_after": version}


def _committed(opened: OpenedStream, run: str, begun: Mapping[str, Any]) -> bool | None:
    """Whether a run committed of which no entry of the log says so; None: nobody knows.

    Where entries were cleaned away, the instant of the last run that committed tells, which the log keeps for good;
    in a log from before it did, the files that the run took and added.
    """
    # Also of a table that is refused until it is repaired.
    snapshot, _ = opened.store.returned()
    if _was_replaced(begun, snapshot):
        return None
    if opened.store.has_entries(_basis_version(begun), snapshot.version):
        return False
    name, last_ns = parse_run_name(run), snapshot.counters.last_run_ns or 0
    if name is not None and "basis" in begun and last_ns <= name.started_ns:
        return last_ns == name.started_ns
    return is_in_force(opened, run, snapshot)


def _basis_version(begun: Mapping[str, Any]) -> int:
    """The version of the table that a run began on; of a record from before it was kept, the one before the first."""
    version: int = begun.get("basis", {}).get("version", -1)
    return version


def _was_replaced(begun: Mapping[str, Any], snapshot: Snapshot) -> bool:
    """Whether the table is another one than the run began on, or an earlier state of it."""
    basis_of_run = begun.get("basis")
    if basis_of_run is None:
        return False
    is_another: bool = basis_of_run["table_id"] != snapshot.table_id
    return is_another or snapshot.version < basis_of_run["version"]
