"""Pauses: nothing that removes goes on while one is in effect; everything else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention.api import pausing
from retention.api.warehouse import Warehouse
from retention.apply.reclaim import leftovers, run
from retention.core.outcomes import Outcome
from retention.core.units import DAY
from retention.errors import BusyError, DamagedError, RefusedError, RetentionError, UsageError
from retention.inspect.measures import measure
from retention.stores.lease import lease
from retention.stores.pauses import PauseRecords
from tests.retention.api.test_table import warehouse as warehouse_of_table
from tests.support.sandboxes import NOW, ORDERS, lines, opened

ROLLED = {**ORDERS, "allow_rollup_hdrs": True}
ROLLUP = ['{"subject": "orders.new", "data": "sum", "headers": {"Nats-Rollup": "sub"}}']


def only(outcomes: list[Outcome[Any]]) -> Any:
    (outcome,) = outcomes
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


REMOVALS: dict[str, Callable[[Warehouse], object]] = {
    "apply": lambda at: only(at.apply(["ORDERS"])),
    "saved plan": lambda at: only(at.apply_plans([only(at.plan(["ORDERS"]))])),
    "purge": lambda at: at.stream("ORDERS").purge().apply(),
    "delete": lambda at: at.stream("ORDERS").delete(1).apply(),
    "delete --erase": lambda at: at.stream("ORDERS").delete(1, erase=True).apply(),
    "drop": lambda at: at.stream("ORDERS").drop().apply(),
    "roll-up": lambda at: at.stream("ORDERS").publish(ROLLUP),
    "reclaim": lambda at: only(at.reclaim(["ORDERS"]).apply()),
    "leftovers": lambda at: only(at.reclaim_leftovers(["ORDERS"]).apply()),
}


@pytest.fixture(params=["ORDERS", None])
def scope(request: pytest.FixtureRequest) -> list[str] | None:
    """The stream by name, or the whole warehouse."""
    return None if request.param is None else [request.param]


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = opened(tmp_path, ROLLED, {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 1})
    made.stream("ORDERS").publish(lines(100))
    made.stream("OTHER").publish(lines(2, "other.a"))
    return made


@pytest.mark.parametrize("name", REMOVALS)
def test_a_removal_is_refused_until_resumed(
    warehouse: Warehouse, scope: list[str] | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (run, leftovers):
        monkeypatch.setattr(module, "agreed_now", lambda _, now_ns: now_ns)
    (pause,) = warehouse.pause(scope, reason="wrong limit")
    assert (pause.name, pause.since_ns, pause.reason) == (scope and "ORDERS", NOW, "wrong limit")
    before = warehouse.stream("ORDERS").state()
    assert before.paused == pause
    with pytest.raises(RefusedError, match=r"paused since .* \(wrong limit\); nothing was changed"):
        REMOVALS[name](warehouse)
    assert warehouse.stream("ORDERS").state() == before
    assert warehouse.resume(scope, reason="corrected") == [pause]
    REMOVALS[name](warehouse)
    assert warehouse.stream("ORDERS").state().paused is None


def test_other_streams_and_all_that_removes_nothing_go_on(warehouse: Warehouse) -> None:
    removed = only(warehouse.apply(["ORDERS"]))
    warehouse.pause(["ORDERS"], reason="a look")
    assert only(warehouse.apply(["OTHER"])).removed_messages == 1
    assert warehouse.undo(removed.run)["restored_messages"] == removed.removed_messages
    warehouse.stream("ORDERS").publish(lines(1))
    only(warehouse.compact(["ORDERS"]).apply())
    assert only(warehouse.plan(["ORDERS"])).removed_messages
    of_stream = [measure(warehouse.log(name).opened, NOW) for name in ("ORDERS", "OTHER")]
    assert [each.is_paused for each in of_stream] == [True, False]


def test_a_pause_of_the_warehouse_outlives_those_of_its_streams(warehouse: Warehouse) -> None:
    warehouse.pause(reason="all")
    with pytest.raises(UsageError, match="the whole warehouse are paused, not those of this one"):
        warehouse.resume(["ORDERS"], reason="x")
    warehouse.pause(["ORDERS"], reason="one")
    warehouse.resume(["ORDERS"], reason="one is done")
    with pytest.raises(RefusedError, match="whole warehouse"):
        only(warehouse.apply(["ORDERS"]))
    warehouse.resume(reason="done")
    with pytest.raises(UsageError, match="are not paused"):
        warehouse.resume(reason="again")


def test_a_pause_waits_for_the_run_in_progress(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "WAIT_S", 0.01)
    root = warehouse.stream("ORDERS").opened.root
    with (
        lease(root, "maintenance", lambda: NOW),
        pytest.raises(BusyError, match=r"^ORDERS: removals are paused, and a run"),
    ):
        warehouse.pause(reason="stop")
    with pytest.raises(RefusedError, match="paused"):
        only(warehouse.apply(["ORDERS"]))
    assert warehouse.pause(reason="stop")


def test_the_last_record_counts_even_from_a_clock_that_is_behind(tmp_path: Path) -> None:
    records = PauseRecords(str(tmp_path), "ORDERS")
    records.add("pause", "first", {}, NOW)
    records.add("resume", "second", {}, NOW - DAY)
    assert records.current() is None
    records.add("pause", "third", {}, NOW - DAY)
    last = records.current()
    assert last is not None
    assert last.reason == "third"


@pytest.mark.parametrize("content", ["", "{", '{"format": 2, "kind": "resume"}'])
def test_nothing_is_removed_while_a_record_cannot_be_read(
    warehouse: Warehouse, content: str
) -> None:
    warehouse.pause(["ORDERS"], reason="stop")
    warehouse.resume(["ORDERS"], reason="go")
    place = Path(warehouse.stream("ORDERS").opened.root, "_retention", "pauses")
    max(place.iterdir()).write_text(content, encoding="utf-8")
    with pytest.raises(DamagedError, match="`retention pause ORDERS --reason …`"):
        only(warehouse.apply(["ORDERS"]))
    warehouse.pause(["ORDERS"], reason="as told")
    warehouse.resume(["ORDERS"], reason="as told")
    assert only(warehouse.apply(["ORDERS"])).removed_messages


@pytest.mark.parametrize(("names", "reason"), [(["NOPE"], "x"), (None, " "), (["ORDERS"], "")])
def test_a_mistaken_pause_changes_nothing(
    warehouse: Warehouse, names: list[str] | None, reason: str
) -> None:
    with pytest.raises(RetentionError):
        warehouse.pause(names, reason=reason)
    assert warehouse.stream("ORDERS").state().paused is None


def test_the_rows_of_a_table_and_its_removed_files_stay(tmp_path: Path) -> None:
    at = warehouse_of_table(tmp_path)
    table = at.table("events")
    plan = table.plan()
    at.pause(["events"], reason="stop")
    before = at.table("events").state()
    for removal in (table.apply, plan.apply, at.reclaim_tables(["events"]).apply):
        with pytest.raises(RefusedError, match=r"^events: removals are paused"):
            raised(removal())
    assert before.paused is not None
    assert (before.paused.reason, table.state()) == ("stop", before)
    at.resume(["events"], reason="go")
    assert plan.apply().plan.removed_rows == 70


def raised(outcome: object) -> None:
    """Raise the error of an outcome, if this is one."""
    if isinstance(outcome, list):
        only(outcome)
