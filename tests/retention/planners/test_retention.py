"""Planning without opening the table: a cached idle state is valid until its due instant, and no longer."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse
from retention.apply.guards import Guards
from retention.engines.select import Engines
from retention.plan.forecast import NOTHING_FORETOLD, Due, Forecast
from retention.plan.plan import Plan
from retention.planners.cached import Planned, plan_pass
from retention.planners.shown import plan_stream
from retention.ports import Snapshot
from retention.stores.delta.store import DeltaStore
from retention.views.json_entries import plan_entry
from tests.support.laying import SECOND, START, File, Laid, lay, warehouse_with

NOW = START + 20 * SECOND


def stream(folder: Path, **config: Any) -> Warehouse:
    warehouse = warehouse_with(folder, "delta", NOW, **config)
    messages = [Laid(seq, "a", START + seq * SECOND) for seq in range(1, 5)]
    files = [File(1, messages[:2]), File(3, messages[2:])]
    if not warehouse.stream("ORDERS").opened.store.exists():
        lay(warehouse.stream("ORDERS").opened, files)
    return warehouse


def planned(warehouse: Warehouse, as_of_ns: int = NOW) -> Planned:
    with Engines("local") as engines:
        return plan_pass(warehouse.stream("ORDERS").opened, as_of_ns, engines)


def shown(warehouse: Warehouse, as_of_ns: int = NOW) -> Plan:
    with Engines("local") as engines:
        return plan_stream(warehouse.stream("ORDERS").opened, as_of_ns, engines)


def essence(plan: Plan) -> tuple[object, ...]:
    return (
        plan.plan_id,
        plan.header.version,
        plan.header.table_id,
        plan.header.segments,
        plan.header.read,
        plan.summary(),
    )


def test_the_second_pass_over_a_quiet_stream_opens_nothing_and_plans_the_same(
    tmp_path: Path,
) -> None:
    warehouse = stream(tmp_path, max_age=30 * SECOND)
    first, second = planned(warehouse), planned(warehouse)
    assert first.snapshot is not None
    assert second.snapshot is None
    assert essence(second.plan) == essence(first.plan)
    assert dict(second.next_seq) == dict(first.next_seq) == {0: 5}


def test_what_is_due_is_planned_at_its_very_instant(tmp_path: Path) -> None:
    warehouse = stream(tmp_path, max_age=30 * SECOND)
    planned(warehouse)
    due = START + 31 * SECOND
    assert planned(warehouse, due - 1).snapshot is None
    assert planned(warehouse, due).plan.removed_messages == 1


def test_a_commit_makes_the_stream_be_opened_again(tmp_path: Path) -> None:
    warehouse = stream(tmp_path, max_msgs=4)
    planned(warehouse)
    assert planned(warehouse, START + 10**6 * SECOND).snapshot is None
    warehouse.stream("ORDERS").publish(['{"subject": "a", "data": "x"}'])
    assert planned(warehouse).plan.removed_messages == 1


def test_another_policy_makes_the_stream_be_opened_again(tmp_path: Path) -> None:
    planned(stream(tmp_path, max_age=30 * SECOND))
    assert planned(stream(tmp_path, max_age=5 * SECOND)).plan.removed_messages == 4


def test_what_cannot_be_trusted_is_not_used(tmp_path: Path) -> None:
    warehouse = stream(tmp_path, max_age=30 * SECOND)
    planned(warehouse)
    [place] = tmp_path.rglob("due.json")
    good = place.read_bytes()
    later = json.loads(good)
    later["value"]["due_ns"] *= 2
    for bad in (json.dumps(later).encode(), good[:-9], b"[]", b"\xff", b""):
        place.write_bytes(bad)
        assert planned(warehouse).state is not None
    assert planned(warehouse).state is None


def test_a_pass_in_one_go_opens_the_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = stream(tmp_path, max_age=17 * SECOND)
    opened: list[DeltaStore] = []
    snapshot = DeltaStore.snapshot

    def counted(store: DeltaStore) -> Snapshot:
        opened.append(store)
        return snapshot(store)

    monkeypatch.setattr(DeltaStore, "snapshot", counted)
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    assert (outcome.value.removed_messages, len(opened)) == (3, 1)
    [again], _ = warehouse.apply(), warehouse.apply()
    assert again.value is not None
    assert (again.value.removed_messages, len(opened)) == (0, 2)
    assert again.value.version_before == outcome.value.version_after


def test_a_plan_that_opens_nothing_still_says_what_is_due_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = stream(tmp_path, max_age=30 * SECOND)
    told = [shown(warehouse).forecast]
    with monkeypatch.context() as patched:
        patched.setattr(DeltaStore, "snapshot", None)
        told.append(shown(warehouse).forecast)
        later = shown(warehouse, NOW + SECOND)
    assert told[0] == told[1]
    assert told[0].next_due_ns == START + 31 * SECOND
    assert [one.messages_at_least for one in told[0].due] == [0, 4, 4, 4, 4]
    state = warehouse.stream("ORDERS").state().as_json()
    assert {name: state[name] for name in ("next_due_ns", "due")} == asdict(told[0]) | {
        "due": [asdict(one) for one in told[0].due]
    }
    assert later.forecast.due == (Due(NOW + SECOND, 0, 0, 0, 0), *told[0].due[1:])


def test_a_pass_that_is_carried_out_foretells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = stream(tmp_path, max_age=30 * SECOND)

    def foretelling(*_: object) -> Forecast:
        raise AssertionError("apply shows no forecast")

    with monkeypatch.context() as patched:
        patched.setattr("retention.planners.shown.forecast", foretelling)
        for as_of_ns in (NOW, NOW, START + 31 * SECOND):
            [outcome] = warehouse.apply(None, as_of_ns, Guards(allow_future=True))
            assert outcome.value is not None, outcome.sentence


def test_what_a_pass_remembered_is_foretold_when_somebody_looks(tmp_path: Path) -> None:
    warehouse = stream(tmp_path, max_age=30 * SECOND)
    expected = shown(warehouse).forecast
    [place] = tmp_path.rglob("due.json")
    place.unlink()
    planned(warehouse)
    assert json.loads(place.read_bytes())["value"]["forecast"] is None
    assert shown(warehouse).forecast == expected
    assert json.loads(place.read_bytes())["value"]["forecast"] is not None
    assert planned(warehouse).snapshot is None
    assert shown(warehouse).forecast == expected


def test_a_plan_says_what_is_due_when_in_its_entry(tmp_path: Path) -> None:
    warehouse = stream(tmp_path, max_age=17 * SECOND)
    [outcome] = warehouse.plan(["ORDERS"])
    entry = plan_entry(outcome)
    assert entry["next_due_ns"] == NOW
    assert [one["messages_at_most"] for one in entry["due"]] == [3, 4, 4, 4, 4]
    assert shown(stream(tmp_path, max_msgs=9)).forecast == NOTHING_FORETOLD
