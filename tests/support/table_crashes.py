"""Runs on tables in place, each in its own fork, which may be killed at a step."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pyroaring import BitMap64

from retention.config.keeping import RunSettings
from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.core.units import DAY
from retention.engines.local import LocalEngine
from retention.errors import RefusedError, UsageError
from retention.history.kinds import TableApplied, TableUndone
from retention.storage import crash_points
from retention.stores.holds import Hold, new_id
from retention.stores.sidecar.last_verification import last_verification
from retention.tables.apply import apply_now, apply_plan
from retention.tables.committing import committing_runs
from retention.tables.holds import TableHoldRecords, hold_of_rows, place_hold
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_table
from retention.tables.reclaim import plan_table_reclaim, reclaim_table
from retention.tables.recorded import maintained
from retention.tables.undo import undo_run
from retention.verify.tables import verify_table
from tests.retention.tables import directories
from tests.retention.tables.directories import TEN_DAYS, Directory
from tests.retention.tables.tables import NOW, Events, Removals, at, events
from tests.support.crew import serve
from tests.support.unlucky import failing

SOME: Removals = {
    0: {"max_age": None},
    1: {"max_age": BitMap64(range(10))},
    2: {"max_rows": BitMap64([7])},
}
ONE_MORE: Removals = {1: {"max_age": None}}
TWO_FILES = replace(TEN_DAYS, limits=TableLimits(max_age_ns=2 * DAY))
_OLD = TablePolicy(TableColumns(time=("at",), unit="s"), TableLimits(max_age_ns=2 * DAY))
SETTINGS = RunSettings.model_validate({"grace": "7d", "history": "9d"})
RESTORED = "restored"
RECLAIMED_NS = NOW + 10 * DAY
"""When the files of all passes but the last may be deleted, and the records of the first pass and its undo."""


class _Table(Protocol):
    @property
    def opened(self) -> OpenedTable: ...

    def plan(self, removals: Removals = SOME) -> TablePlan:
        """A removal."""
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

    def plan(self, removals: Removals = SOME) -> TablePlan:
        return replace(self.events.plan(removals), as_of_ns=self.opened.clock())

    def state(self) -> dict[str, Any]:
        entries = sorted(Path(self.events.location, "_delta_log").glob("*.json"))
        return {"rows": self.events.ids(), "entries": len(entries)}


@dataclass(frozen=True)
class _Files(Directory):
    def plan(self, removals: Removals = SOME) -> TablePlan:
        """A removal; this one goes by the age of rows."""
        del removals
        return plan_table(self.opened, self.opened.clock(), lambda _: LocalEngine())

    def state(self) -> dict[str, Any]:
        return {"rows": self.files(), "aside": self.aside()}


def _at(folder: Path, now_ns: int = NOW) -> _Table:
    # Looking for a log would fail where the storage does.
    is_delta = "directory" not in folder.name
    opened = at(folder).opened if is_delta else directories.at(folder, TWO_FILES).opened
    opened = replace(opened, clock=lambda: now_ns, settings=SETTINGS)
    return _Delta(Events(opened)) if is_delta else _Files(opened)


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


def prepare_reclaim(folder: Path, *, kind: str) -> None:
    """A table from which rows were removed, restored, removed again, and others removed days later."""
    prepare_undo(folder, kind=kind)
    undo(folder)
    if kind == "directory":
        for name, age in (("e", -3), ("f", -30)):
            directories.at(folder).write(f"kind=y/{name}.parquet", [age])
    for days, removals in ((1, SOME), (5, ONE_MORE)):
        table = _at(folder, NOW + days * DAY)
        apply_plan(table.opened, table.plan(removals))


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


def reclaim(folder: Path) -> None:
    """Delete the files that may go by then."""
    reclaim_table(_at(folder, RECLAIMED_NS).opened)


def hold(folder: Path) -> None:
    """Hold a row, unless an earlier process has done so, then remove the others that are due."""
    opened = _due(folder)
    if not TableHoldRecords(opened).in_effect():
        now_ns = opened.clock()
        bare = Hold("events", new_id(now_ns), "case 41", at_ns=now_ns)
        place_hold(opened, hold_of_rows(opened, bare, {"id": 1}))
    with maintained(opened):
        pass
    if not _done(_at(folder), TableApplied):
        apply_now(opened, opened.clock(), lambda _: LocalEngine())


def _due(folder: Path) -> OpenedTable:
    """The table under a limit by which most rows are due."""
    opened = _at(folder).opened
    return opened if opened.format == "parquet" else replace(opened, policy=_OLD)


def outcome_of_hold(folder: Path) -> dict[str, Any]:
    """The outcome of a pass under a legal hold."""
    records = TableHoldRecords(_at(folder).opened).in_effect()
    held = [hold.values for hold in records]
    return {**outcome(folder), "holds": held, "committing": committing_runs(_at(folder).opened)}


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


def outcome_of_reclaim(folder: Path) -> dict[str, Any]:
    """The outcome of a reclaim that must not depend on a kill, with what a further one would find."""
    again = plan_table_reclaim(_at(folder, RECLAIMED_NS).opened).as_json()
    answers = undone(copy := Path(shutil.copytree(folder, f"{folder}+undone")))
    shutil.rmtree(copy)
    return {
        **outcome(folder),
        **{name: again[name] for name in ("files", "history", "staying")},
        "stored": sorted(path.name for path in (folder / "lake").rglob("*.parquet*")),
        **answers,
    }


def undone(folder: Path) -> dict[str, Any]:
    """The answers of undos of the last two passes, the newest first, and the rows after them."""
    table = _at(folder, RECLAIMED_NS)
    answers = [_undo(table.opened, run) for run in _done(table, TableApplied)[:2]]
    return {"answers": answers, "rows_undone": table.state()["rows"]}


def verify(folder: Path) -> None:
    """Verify the table."""
    verify_table(_at(folder).opened)


def outcome_of_verify(folder: Path) -> dict[str, Any]:
    """The outcome of a verification that must not depend on a kill."""
    last = last_verification(_at(folder).opened.home)
    assert last is not None
    return {**outcome(folder), **vars(replace(last, started_ns=0, ended_ns=0))}


def _undo(opened: OpenedTable, run: str) -> str:
    try:
        undo_run(opened, run)
    except RefusedError as error:
        return re.sub(r"\S*/", "", str(error))
    return RESTORED


@dataclass(frozen=True)
class Act:
    """A change of a table, its initial state, and the part of its outcome that must not depend on a kill."""

    prepare: Callable[..., None]
    act: Callable[[Path], None]
    outcome: Callable[[Path], dict[str, Any]] = outcome


ACTS = {
    "apply": Act(prepare_apply, apply),
    "undo": Act(prepare_undo, undo),
    "hold": Act(prepare_apply, hold, outcome_of_hold),
    "reclaim": Act(prepare_reclaim, reclaim, outcome_of_reclaim),
    "verify": Act(prepare_undo, verify, outcome_of_verify),
}


def _in_a_fork(case: dict[str, Any]) -> None:
    folder = Path(case["folder"])
    given = ACTS[case["act"]]
    questions = {
        **dict.fromkeys(("outcome", "recover", "settled"), given.outcome),
        "undone": undone,
    }
    crash_points.watch(case.get("env", {}))
    if case["do"] == "prepare":
        given.prepare(folder, kind=case["kind"])
    if case["do"] == "record":
        steps: list[str] = []
        with crash_points.watched_by(steps.append):
            given.act(folder)
        Path(case["log"]).write_text(json.dumps(steps), encoding="utf-8")
    if case["do"] == "fail":
        failed = failing(folder, given.act, case)
        Path(case["result"]).write_text(json.dumps(failed), encoding="utf-8")
    if case["do"] in ("act", "recover"):
        given.act(folder)
    if case["do"] == "settled":
        _settled(folder)
    if case["do"] in questions:
        answer = questions[case["do"]](folder)
        Path(case["result"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    serve(_in_a_fork)
