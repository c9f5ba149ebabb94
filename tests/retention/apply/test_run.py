from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.apply.saved_plan import apply_plan
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.errors import RefusedError, StalePlanError
from retention.history.runs import history_of
from retention.planners.shown import plan_stream
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with
from tests.support.run_records import run_record

NOW = START + 100 * SECOND


@pytest.fixture(params=["delta", "parquet"])
def orders(request: pytest.FixtureRequest, warehouse: Path) -> OpenedStream:
    streams = warehouse_with(warehouse, request.param, NOW, max_age="60s", max_msgs_per_subject=9)
    opened = streams.stream("ORDERS").opened
    lay(opened, even_segments(4, 10))
    return opened


def test_a_report_counts_what_the_plan_counted(orders: OpenedStream) -> None:
    with Engines("local") as engines:
        plan = plan_stream(orders, START + 75 * SECOND, engines)
        report = apply_now(orders, START + 75 * SECOND, engines, Guards())
    assert report.plan_id == plan.plan_id
    assert report.removed_messages == plan.removed_messages == sum(report.by_rule.values())
    assert report.version_after == report.version_before + 1
    assert report.bytes_written > 0


def test_a_second_apply_removes_nothing_and_commits_nothing(orders: OpenedStream) -> None:
    with Engines("local") as engines:
        apply_now(orders, START + 75 * SECOND, engines, Guards())
        again = apply_now(orders, START + 75 * SECOND, engines, Guards())
    assert again.removed_messages == 0
    assert again.version_after == again.version_before


def test_a_saved_plan_is_applied_unchanged_once(orders: OpenedStream) -> None:
    with Engines("local") as engines:
        plan = plan_stream(orders, START + 75 * SECOND, engines)
        assert apply_plan(orders, plan, engines, Guards()).plan_id == plan.plan_id
        with pytest.raises(StalePlanError, match="plan again"):
            apply_plan(orders, plan, engines, Guards())


def test_a_plan_made_under_another_policy_is_refused_by_what_changed(orders: OpenedStream) -> None:
    with Engines("local") as engines:
        plan = plan_stream(orders, START + 75 * SECOND, engines)
        relaxed = replace(
            orders, config=orders.config.model_copy(update={"max_msgs_per_subject": 10})
        )
        with pytest.raises(StalePlanError, match="max_msgs_per_subject 9 → 10"):
            apply_plan(relaxed, plan, engines, Guards())


def test_an_instant_after_the_clock_is_refused_unless_allowed(orders: OpenedStream) -> None:
    with Engines("local") as engines:
        with pytest.raises(RefusedError, match="later than the clock"):
            apply_now(orders, NOW + 1, engines, Guards())
        apply_now(orders, NOW + 1, engines, Guards(allow_future=True))


def test_an_instant_before_the_last_applied_one_is_refused_unless_allowed(
    orders: OpenedStream,
) -> None:
    with Engines("local") as engines:
        apply_now(orders, NOW, engines, Guards())
        with pytest.raises(RefusedError, match="earlier than the last applied one"):
            apply_now(orders, NOW - 1, engines, Guards())
        apply_now(orders, NOW - 1, engines, Guards(allow_rewind=True))
        with pytest.raises(RefusedError, match="earlier than the last applied one"):
            apply_now(orders, NOW - 1, engines, Guards())


def test_ttls_that_were_once_on_are_not_switched_off(orders: OpenedStream) -> None:
    timed = replace(orders, config=orders.config.model_copy(update={"allow_msg_ttl": True}))
    with Engines("local") as engines:
        apply_now(orders, NOW - 1, engines, Guards())
        apply_now(timed, NOW, engines, Guards())
        plan = plan_stream(orders, NOW, engines)
        for act in (partial(apply_now, orders, NOW), partial(apply_plan, orders, plan)):
            with pytest.raises(RefusedError, match="can not be disabled, server error 10052"):
                act(engines, Guards())
        apply_now(timed, NOW, engines, Guards())


def test_a_run_interrupted_before_its_commit_is_settled_as_abandoned(orders: OpenedStream) -> None:
    history = history_of(orders.warehouse, orders.name)
    history.begin(run_record(history.name_run(1), as_of_ns=NOW))
    with Engines("local") as engines:
        apply_now(orders, NOW - SECOND, engines, Guards())
    assert [record.status for record in history.outcomes()] == ["done", "abandoned"]


def test_a_run_interrupted_after_its_commit_is_settled_as_done(orders: OpenedStream) -> None:
    history = history_of(orders.warehouse, orders.name)
    with Engines("local") as engines:
        report = apply_now(orders, NOW, engines, Guards())
        (Path(history.directory) / f"{report.run}.done.json").unlink()
        apply_now(orders, NOW, engines, Guards())
        with pytest.raises(RefusedError, match="earlier than the last applied one"):
            apply_now(orders, NOW - 1, engines, Guards())
    settled = history.done(report.run)
    assert settled is not None
    assert (settled.status, settled.version_after) == ("done", report.version_after)


def test_a_sequence_is_not_given_twice_although_the_table_forgot(warehouse: Path) -> None:
    streams = warehouse_with(warehouse, "parquet", NOW, max_age="10s")
    opened = streams.stream("ORDERS").opened
    lay(opened, even_segments(1, 10), sealed=True)
    with Engines("local") as engines:
        apply_now(opened, NOW, engines, Guards())
    shutil.rmtree(opened.root)
    published = streams.new_stream("ORDERS").publish(['{"subject": "a", "data": "x"}'])
    assert [ack.seq for ack in published.acks()] == [11]
