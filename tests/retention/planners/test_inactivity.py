from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.api.stream import Stream
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.apply.saved_plan import apply_plan
from retention.consumers.expiry import has_expired, inactive_threshold_ns, mark_used
from retention.consumers.state import new_state
from retention.engines.select import Engines
from retention.errors import StalePlanError, UsageError
from retention.history.kinds import Applied
from retention.history.runs import history_of
from retention.plan.planfile import load_plans, save_plans
from retention.planners.explain import explain
from retention.planners.shown import plan_stream
from retention.stores.consumer_table import ConsumerTable
from retention.views.text import plan_text, report_text
from tests.retention.planners.test_interest import left
from tests.support.laws import law
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with

BEGAN = START + 60 * SECOND
LOCAL = Engines("local")
Make = Callable[..., Stream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream of two segments of ten messages on s.0 to s.2 in turn, seconds after the start of consumers."""

    def made(at: float = 0, **settings: Any) -> Stream:
        now = BEGAN + int(at * SECOND)
        strict: dict[str, Any] = {"retention": "interest", "unmatched": "remove"}
        stream = warehouse_with(tmp_path, request.param, now, **strict | settings).stream("ORDERS")
        if not stream.opened.store.exists():
            lay(stream.opened, even_segments(2, 10))
        return stream

    return made


def add(stream: Stream, name: str, **config: Any) -> None:
    key = "name" if config.pop("ephemeral", False) else "durable_name"
    stream.consumers.add({key: name, "ack_policy": "explicit", **config})


def names(stream: Stream) -> list[str]:
    return [one.name for one in stream.consumers.list()]


def passing(stream: Stream) -> dict[str, Any]:
    opened = stream.opened
    return apply_now(opened, opened.clock(), LOCAL, Guards()).as_json()


def test_an_ephemeral_goes_after_five_seconds_and_what_only_it_needed(make: Make) -> None:
    add(make(), "ephemeral", ephemeral=True, filter_subject="s.1")
    add(make(), "durable", filter_subject="s.0")
    assert passing(make(4.999))["removed_messages"] == 7
    assert names(make(4.999)) == ["durable", "ephemeral"]
    stream = make(5)
    plan = plan_stream(stream.opened, stream.opened.clock(), LOCAL)
    assert plan_text(plan)[1] == (
        "  would delete consumers that were inactive for too long: ephemeral"
    )
    assert names(stream) == ["durable", "ephemeral"]
    report = passing(stream)
    assert (report["by_rule"], report["deleted_consumers"]) == ({"interest": 7}, ["ephemeral"])
    assert report["plan_id"] == plan.plan_id
    assert names(stream) == ["durable"]
    assert left(stream.opened) == [3, 6, 9, 12, 15, 18]
    [newest, _] = history_of(stream.opened.warehouse, "ORDERS").outcomes()
    assert isinstance(newest, Applied)
    assert newest.deleted_consumers == ["ephemeral"]
    assert passing(make(9))["deleted_consumers"] == []


def test_a_durable_goes_only_if_it_says_so(make: Make) -> None:
    add(make(), "stays")
    add(make(), "goes", inactive_threshold="1m")
    assert passing(make(59))["deleted_consumers"] == []
    assert passing(make(60))["deleted_consumers"] == ["goes"]
    assert names(make()) == ["stays"]


@pytest.mark.parametrize("unmatched", ["keep", "remove"])
def test_a_stream_that_loses_its_last_consumer_keeps_everything(make: Make, unmatched: str) -> None:
    add(make(), "ephemeral", ephemeral=True)
    stream = make(60, unmatched=unmatched)
    report = apply_now(stream.opened, stream.opened.clock(), LOCAL, Guards())
    assert (report.removed_messages, report.deleted_consumers) == (0, ["ephemeral"])
    assert report_text(report)[1].endswith(
        "  deleted consumers that were inactive for too long: ephemeral"
    )
    assert len(left(stream.opened)) == 20
    assert "no consumer" in explain(stream.opened, 1, stream.opened.clock(), LOCAL).sentence


def test_who_uses_a_consumer_keeps_it(make: Make) -> None:
    add(make(), "c", inactive_threshold="10s", filter_subject="s.1")
    make(9).consumer("c").fetch(1)
    assert passing(make(18))["deleted_consumers"] == []
    make(18).consumers.update(
        {
            "durable_name": "c",
            "ack_policy": "explicit",
            "inactive_threshold": "10s",
            "filter_subject": "s.0",
        }
    )
    assert passing(make(27))["deleted_consumers"] == []
    assert passing(make(28))["deleted_consumers"] == ["c"]
    with pytest.raises(UsageError, match="there is no consumer c"):
        make(29).consumer("c")


def test_a_log_of_acks_tells_that_somebody_uses_a_consumer(make: Make, tmp_path: Path) -> None:
    add(make(), "c", inactive_threshold="10s")
    log = tmp_path / "acks.jsonl"
    log.write_text('{"subject": "$JS.ACK.ORDERS.c.1.1.1.1700000000000000000.19", "data": "+ACK"}\n')
    make(9).consumers.fold(str(log))
    assert passing(make(18))["by_rule"] == {"interest": 1}
    make(18).consumers.fold(str(log))
    assert passing(make(19))["deleted_consumers"] == ["c"]


def test_one_that_is_listed_is_wanted_by_the_list(make: Make) -> None:
    listed = [{"name": "c", "ack_policy": "explicit"}]
    passing(make(consumers=listed))
    assert passing(make(60, consumers=listed))["deleted_consumers"] == []
    assert passing(make(60))["deleted_consumers"] == ["c"]


def test_under_limits_nobody_is_asked_and_none_deleted(make: Make) -> None:
    add(make(), "c", ephemeral=True)
    assert passing(make(60, retention="limits"))["deleted_consumers"] == []
    assert names(make()) == ["c"]


def test_a_saved_plan_deletes_whom_it_names_unless_somebody_came_back(
    make: Make, tmp_path: Path
) -> None:
    add(make(), "c", inactive_threshold="10s", filter_subject="s.1")
    add(make(), "d", filter_subject="s.0")
    stream = make(10)
    save_plans(str(tmp_path / "p.json"), [plan_stream(stream.opened, BEGAN + 10 * SECOND, LOCAL)])
    [plan] = load_plans(str(tmp_path / "p.json"))
    assert [pin.consumer for pin in plan.pins.expired] == ["c"]
    make(11).consumer("c").fetch(1)
    with pytest.raises(
        StalePlanError,
        match="consumer c was inactive when this plan was made, and has been used since",
    ):
        apply_plan(stream.opened, plan, LOCAL, Guards())
    assert len(left(stream.opened)) == 20
    stream = make(30)
    plan = plan_stream(stream.opened, BEGAN + 30 * SECOND, LOCAL)
    report = apply_plan(stream.opened, plan, LOCAL, Guards())
    assert (report.removed_messages, report.deleted_consumers) == (14, ["c"])
    assert names(stream) == ["d"]


def test_one_who_comes_back_while_a_pass_begins_keeps_the_consumer(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(make(), "c", inactive_threshold="10s")
    update = ConsumerTable.update

    def meanwhile(table: ConsumerTable, *arguments: Any) -> Any:
        monkeypatch.setattr(ConsumerTable, "update", update)
        make(10).consumer("c").fetch(1)
        return update(table, *arguments)

    monkeypatch.setattr(ConsumerTable, "update", meanwhile)
    assert passing(make(10))["deleted_consumers"] == []
    assert names(make()) == ["c"]


@law
@given(
    st.sampled_from([0, 1, 10]),
    st.booleans(),
    st.none() | st.integers(0, 20),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_a_later_use_never_ends_a_consumer_and_a_later_look_never_saves_it(
    threshold: int, durable: bool, last: int | None, first: int, second: int
) -> None:
    config = {"inactive_threshold": threshold} | ({"durable_name": "c"} if durable else {})
    used = mark_used(config, new_state(1), last) if last is not None else new_state(1)
    over = partial(has_expired, config)
    early, late = sorted((first, second))
    assert not over(used, early) or over(used, late)
    if last is not None:
        assert not over(mark_used(config, used, early), late) or over(used, late)
    if inactive_threshold_ns(config) and last is not None:
        assert over(used, last + inactive_threshold_ns(config))
        assert not over(used, last + inactive_threshold_ns(config) - 1)
