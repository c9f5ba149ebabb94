from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

import retention
from retention.api.warehouse import open_warehouse
from retention.apply.guards import Guards
from retention.errors import BusyError, ConfigError, RefusedError, UsageError
from tests.support.sandboxes import NOW, ORDERS, configured, lines, opened

OTHER = {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 3}


def test_streams_are_those_of_the_configuration_and_those_on_disk(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    warehouse.new_stream("ÄRGER").publish(lines(1, "anything"))
    assert warehouse.streams() == ["ORDERS", "ÄRGER"]


def test_an_unknown_stream_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ORDER: there is no such stream .*did you mean ORDERS\?"):
        opened(tmp_path, ORDERS, OTHER).stream("ORDER")


def test_a_warehouse_without_streams_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nor any other; publish or import"):
        opened(tmp_path).stream("ORDERS")


def test_a_stream_that_only_the_disk_knows_keeps_its_format(tmp_path: Path) -> None:
    opened(tmp_path, {**ORDERS, "format": "parquet"}).stream("ORDERS").publish(lines(3))
    found = opened(tmp_path, format="delta")
    stream = found.stream("ORDERS")
    assert stream.opened.config.format == "parquet"
    assert stream.state().messages == 3


def test_a_directory_without_a_configuration_has_no_limits(tmp_path: Path) -> None:
    opened(tmp_path, ORDERS, format="delta").stream("ORDERS").publish(lines(3))
    (tmp_path / "retention.yaml").unlink()
    warehouse = open_warehouse(tmp_path, clock=lambda: NOW)
    assert warehouse.streams() == ["ORDERS"]
    assert warehouse.stream("ORDERS").plan().plan.is_empty


def test_a_directory_is_opened_by_the_configuration_in_it(tmp_path: Path) -> None:
    configured(tmp_path, ORDERS)
    assert open_warehouse(tmp_path).streams() == ["ORDERS"]


def test_a_configuration_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_warehouse(tmp_path / "missing.yaml")


def test_all_streams_are_planned_at_one_instant(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS, OTHER)
    warehouse.clock = iter(range(NOW, NOW + 1000)).__next__
    outcomes = warehouse.plan()
    assert len({outcome.value.header.as_of_ns for outcome in outcomes if outcome.value}) == 1
    assert [outcome.stream for outcome in outcomes] == ["ORDERS", "OTHER"]


def test_one_streams_failure_stops_no_other(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS, OTHER)
    warehouse.stream("OTHER").publish(lines(5, "other.a"))
    missing, other = warehouse.apply(["NONE", "OTHER"])
    assert isinstance(missing.error, UsageError)
    assert other.value is not None
    assert other.value.removed_messages == 2


def test_a_stream_named_twice_is_done_once(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, OTHER)
    warehouse.stream("OTHER").publish(lines(5, "other.a"))
    assert len(warehouse.apply(["OTHER", "OTHER"])) == 1


def test_history_names_runs_and_undo_takes_one_back(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    stream = warehouse.stream("ORDERS")
    stream.publish(lines(240))
    before = stream.state()
    (outcome,) = warehouse.apply()
    assert outcome.value is not None
    assert stream.state().messages == before.messages - outcome.value.removed_messages < 240
    (record,) = warehouse.history()
    assert record["run"] == outcome.value.run
    undone = warehouse.undo(record["run"])
    assert undone["restored_messages"] == outcome.value.removed_messages
    assert stream.state().messages == before.messages
    assert [one["kind"] for one in warehouse.history(["ORDERS"])] == ["undo", "apply"]


def test_undo_of_a_run_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no stream in .* has such a run"):
        opened(tmp_path, ORDERS).undo("20260101T000000.0Z-abc")


def test_guards_are_passed_on(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    warehouse.stream("ORDERS").publish(lines(240))
    (refused,) = warehouse.apply(as_of=NOW + 1)
    assert isinstance(refused.error, RefusedError)
    (allowed,) = warehouse.apply(as_of=NOW + 1, guards=Guards(allow_future=True))
    assert allowed.error is None


@pytest.mark.parametrize("planned", [False, True])
def test_who_comes_second_is_told_to_run_again_and_not_that_time_runs_back(
    tmp_path: Path, planned: bool
) -> None:
    configured(tmp_path, ORDERS)
    times = iter(range(NOW, NOW + 10**6))
    mine, rival = (
        open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: next(times))
        for _ in range(2)
    )
    mine.stream("ORDERS").publish(lines(1))
    mine.apply()
    instant = mine.instant(None)
    plans = [one.value for one in mine.plan(as_of=instant) if one.value is not None]
    (first,) = rival.apply()
    assert first.error is None
    (second,) = mine.apply_plans(plans) if planned else mine.apply(as_of=instant)
    assert isinstance(second.error, BusyError)
    assert "run again" in second.sentence
    (again,) = mine.apply()
    assert again.error is None
    (chosen,) = mine.apply(as_of=NOW - 1)
    assert isinstance(chosen.error, RefusedError)


def test_saved_plans_apply_as_they_were_made(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    warehouse.stream("ORDERS").publish(lines(240))
    (planned,) = warehouse.plan()
    assert planned.value is not None
    (applied,) = warehouse.apply_plans([planned.value])
    assert applied.value is not None
    assert applied.value.plan_id == planned.value.plan_id


def test_the_package_opens_warehouses_and_knows_its_version() -> None:
    assert retention.open_warehouse is open_warehouse
    assert retention.__version__ == importlib.metadata.version("lake-retention")
    with pytest.raises(AttributeError, match="no attribute 'close_warehouse'"):
        _ = retention.close_warehouse


def test_the_state_of_a_warehouse_has_a_row_for_each_stream(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS, OTHER)
    warehouse.stream("OTHER").publish(lines(5, "other.a"))
    state = warehouse.state()
    assert [outcome.stream for outcome in state] == ["ORDERS", "OTHER"]
    assert state.to_pandas()[["name", "messages"]].to_numpy().tolist() == [
        ["ORDERS", 0],
        ["OTHER", 5],
    ]
    assert "at least 2 messages" in repr(state)
    assert "at least 2 messages" in state._repr_html_()
    assert warehouse.state(["OTHER"])[0].value == warehouse.stream("OTHER").state()
    assert warehouse.state([]) == []
    assert isinstance(warehouse.state(["NONE"])[0].error, UsageError)


def test_a_stream_that_cannot_be_read_is_in_the_state_with_its_error(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS, OTHER, format="delta")
    warehouse.stream("OTHER").publish(lines(5, "other.a"))
    [log] = (tmp_path / "streams" / "OTHER").rglob("00000000000000000000.json")
    log.write_text("{")
    state = opened(tmp_path, ORDERS, OTHER, format="delta").state()
    assert state[1].error is not None
    assert "OTHER" in state.to_pandas()["error"][1]
    assert "OTHER: " in repr(state)


def test_everything_that_a_warehouse_returns_displays_itself(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, {**ORDERS, "max_msgs": 3}, {"name": "<b"})
    orders = warehouse.stream("ORDERS")
    published = orders.publish(lines(9))
    run = orders.plan().apply().run
    shown: list[Any] = [
        warehouse,
        orders,
        published,
        warehouse.run(run),
        warehouse.show_undo(run),
        warehouse.undo(run),
        warehouse.plan(),
        warehouse.apply(),
        warehouse.history(),
        warehouse.runs(),
        warehouse.runs()[0],
        warehouse.state(),
        warehouse.reclaim(),
        warehouse.compact(["ORDERS"]),
        orders.compact().apply(),
        orders.simulate(max_msgs=2),
        orders.replay(max_msgs=2),
        orders.repair_lost_files(),
        orders.consumers,
        orders.consumers.list(),
    ]
    for value in shown:
        assert "<strong" in value._repr_html_(), type(value)
        assert "<b<" not in value._repr_html_()
        assert len(repr(value)) < 2_000
