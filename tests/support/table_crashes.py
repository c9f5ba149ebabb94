"""Runs on tables in place, each in its own fork, which may be killed at a step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pyroaring import BitMap64

from retention.core.table_policy import TableLimits
from retention.errors import UsageError
from retention.history.kinds import TableApplied, TableUndone
from retention.storage import crash_points
from retention.tables.apply import apply_plan
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.recorded import maintained
from retention.tables.undo import undo_run
from tests.retention.tables import directories
from tests.retention.tables.directories import TEN_DAYS, Directory
from tests.retention.tables.tables import Events, Removals, at, events
from tests.support.crew import serve
from tests.support.unlucky import failing

SOME: Removals = {
    0: {"max_age": None},
    1: {"max_age": BitMap64(range(10))},
    2: {"max_rows": BitMap64([7])},
}
TWO_FILES = replace(TEN_DAYS, limits=TableLimits(max_age_ns=2 * directories.DAY * 10**9))


class _Table(Protocol):
    @property
    def opened(self) -> OpenedTable: ...

    def plan(self) -> TablePlan:
        """The removal."""
        ...

    def state(self) -> dict[str, Any]:
        """The state that must not depend on a kill."""
        ...


@dataclass(frozen=True)
class _Delta:
    events: Events

    @property
    def opened(self) -> OpenedTable:
        return self.events.opened

    def plan(self) -> TablePlan:
        return self.events.plan(SOME)

    def state(self) -> dict[str, Any]:
        entries = sorted(Path(self.events.location, "_delta_log").glob("*.json"))
        return {"ids": self.events.ids(), "entries": len(entries)}


@dataclass(frozen=True)
class _Files(Directory):
    def state(self) -> dict[str, Any]:
        return {"files": self.files(), "aside": self.aside()}


def _at(folder: Path) -> _Table:
    if (folder / "lake" / "events" / "_delta_log").exists():
        return _Delta(at(folder))
    return _Files(directories.at(folder, TWO_FILES).opened)


def prepare_apply(folder: Path, *, kind: str) -> None:
    """A table with rows to remove."""
    if kind == "directory":
        directories.directory(folder)
    else:
        events(folder, vectors=kind == "vectors")


def prepare_undo(folder: Path, *, kind: str) -> None:
    """A table from which rows were removed."""
    prepare_apply(folder, kind=kind)
    apply(folder)


def apply(folder: Path) -> None:
    """Remove the rows, unless an earlier process has done so."""
    table = _settled(folder)
    if not _done(table, TableApplied):
        apply_plan(table.opened, table.plan())


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


def _settled(folder: Path) -> _Table:
    table = _at(folder)
    with maintained(table.opened):
        return table


def _done(table: _Table, kind: type[TableApplied | TableUndone]) -> list[str]:
    outcomes = table.opened.history.outcomes()
    return [record.run for record in outcomes if isinstance(record, kind) and record.is_done]


def outcome(folder: Path) -> dict[str, Any]:
    """The outcome that must not depend on a kill."""
    table = _at(folder)
    return {
        **table.state(),
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
        prepare(folder, kind=case["kind"])
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
