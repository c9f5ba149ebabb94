"""Runs on tables in place, each in its own fork, which may be killed at a step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from pyroaring import BitMap64

from retention.errors import UsageError
from retention.history.kinds import TableApplied, TableUndone
from retention.storage import crash_points
from retention.tables.apply import apply_plan
from retention.tables.recorded import maintained
from retention.tables.undo import undo_run
from tests.retention.tables.tables import Events, Removals, at, events
from tests.support.crew import serve
from tests.support.unlucky import failing

SOME: Removals = {
    0: {"max_age": None},
    1: {"max_age": BitMap64(range(10))},
    2: {"max_rows": BitMap64([7])},
}


def prepare_apply(folder: Path, *, vectors: bool) -> None:
    """A table with rows to remove."""
    events(folder, vectors=vectors)


def prepare_undo(folder: Path, *, vectors: bool) -> None:
    """A table from which rows were removed."""
    table = events(folder, vectors=vectors)
    apply_plan(table.opened, table.plan(SOME))


def apply(folder: Path) -> None:
    """Remove the rows, unless an earlier process has done so."""
    table = _settled(folder)
    if not _done(table, TableApplied):
        apply_plan(table.opened, table.plan(SOME))


def undo(folder: Path) -> None:
    """Undo the removal, unless an earlier process has done so."""
    table = _settled(folder)
    if not _done(table, TableUndone):
        applied = _done(table, TableApplied)
        if not applied:
            raise UsageError(
                "no run is listed that could be undone; nothing was changed; look again"
            )
        undo_run(table.opened, applied[0])


def _settled(folder: Path) -> Events:
    table = at(folder)
    with maintained(table.opened):
        return table


def _done(table: Events, kind: type[TableApplied | TableUndone]) -> list[str]:
    outcomes = table.opened.history.outcomes()
    return [record.run for record in outcomes if isinstance(record, kind) and record.is_done]


def outcome(folder: Path) -> dict[str, Any]:
    """The outcome that must not depend on a kill."""
    table = at(folder)
    entries = sorted(Path(table.location, "_delta_log").glob("*.json"))
    return {
        "ids": pl.scan_delta(table.location).collect()["id"].sort().to_list(),
        "entries": len(entries),
        "done": len(_done(table, TableApplied)) + len(_done(table, TableUndone)),
        "unfinished": table.opened.history.unfinished(),
    }


ACTS: dict[str, tuple[Callable[..., None], Callable[[Path], None]]] = {
    "apply": (prepare_apply, apply),
    "undo": (prepare_undo, undo),
}


def _in_a_fork(case: dict[str, Any]) -> None:
    folder = Path(case["folder"])
    prepare, act = ACTS[case["act"]]
    crash_points.watch(case.get("env", {}))
    if case["do"] == "prepare":
        prepare(folder, vectors=case["vectors"])
    if case["do"] == "record":
        steps: list[str] = []
        with crash_points.watched_by(steps.append):
            act(folder)
        Path(case["log"]).write_text(json.dumps(steps), encoding="utf-8")
    if case["do"] == "fail":
        failed = failing(folder, act, case)
        Path(case["result"]).write_text(json.dumps(failed), encoding="utf-8")
    if case["do"] in ("act", "recover"):
        act(folder)
    if case["do"] in ("outcome", "recover"):
        Path(case["result"]).write_text(json.dumps(outcome(folder)), encoding="utf-8")


if __name__ == "__main__":
    serve(_in_a_fork)
