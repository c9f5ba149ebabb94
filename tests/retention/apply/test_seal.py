"""`roll_after`: an active segment is sealed when its first message is old enough, so that an idle topic expires."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention.apply.guards import Guards
from retention.errors import StalePlanError
from retention.history.report import RunReport
from retention.inspect.topic_state import PartitionState
from retention.plan.planfile import load_plans
from tests.support.topics import NAME, SECOND, START, World, line

HOUR = 3_600 * SECOND


@pytest.fixture(params=["delta", "parquet"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A message in each partition, the second 10 minutes younger; both expire after an hour."""
    world = World(tmp_path, request.param, {"message_expiry": "1h"})
    world.topic.publish([line("a", partition=0)])
    world.clock.now_ns += HOUR // 6
    world.topic.publish([line("b", partition=1)])
    return world


def applied(world: World) -> RunReport:
    [outcome] = world.warehouse.apply()
    assert outcome.value is not None, outcome.error
    return outcome.value


def partitions(world: World) -> tuple[PartitionState, ...]:
    state = world.topic.state().topic
    assert state is not None
    return state.partitions


def test_without_it_a_quiet_topic_keeps_everything_and_says_what_waits(world: World) -> None:
    world.clock.now_ns = START + HOUR
    assert [one.waits_for_roll for one in partitions(world)] == [1, 0]
    assert [one.roll_due_ns for one in partitions(world)] == [None, None]
    world.clock.now_ns += 100 * HOUR
    assert applied(world).removed_messages == 0
    assert world.open_base() == {0: 0, 1: 0}


def test_a_pass_seals_what_is_old_enough_and_takes_what_has_expired(world: World) -> None:
    world.configure(roll_after="1h")
    assert [one.roll_due_ns for one in partitions(world)] == [START + HOUR, START + HOUR * 7 // 6]
    world.clock.now_ns = START + HOUR - 1_000
    assert applied(world).removed_messages == 0
    assert world.open_base() == {0: 0, 1: 0}
    world.clock.now_ns = START + HOUR
    assert world.topic.plan().plan.removed_messages == 1
    assert world.topic.state().lag.messages == 1  # type: ignore[union-attr]
    assert world.open_base() == {0: 0, 1: 0}
    assert applied(world).by_rule == {"message_expiry": 1}
    assert world.open_base() == {0: 1, 1: 0}
    assert world.places() == [(1, 0, 0, b"b")]
    assert applied(world).removed_messages == 0
    world.topic.publish([line("c", partition=0)])
    assert world.places()[0] == (0, 1, 1, b"c")


def test_what_is_sealed_and_not_expired_waits_for_its_time(world: World) -> None:
    world.configure(roll_after="10m")
    world.clock.now_ns = START + HOUR // 3
    assert applied(world).removed_messages == 0
    assert world.open_base() == {0: 1, 1: 1}
    assert [one.waits_for_roll for one in partitions(world)] == [0, 0]
    assert [one.segments for one in partitions(world)] == [2, 2]
    world.clock.now_ns = START + HOUR
    assert applied(world).removed_messages == 1


def test_the_next_publish_seals_it_too(world: World) -> None:
    world.configure(roll_after="1h")
    world.clock.now_ns = START + HOUR
    world.topic.publish([line("c", partition=0), line("d", partition=1)])
    assert world.places() == [(0, 0, 0, b"a"), (0, 1, 1, b"c"), (1, 0, 0, b"b"), (1, 0, 1, b"d")]


def test_what_somebody_has_not_read_is_sealed_and_stays(world: World) -> None:
    world.configure(roll_after="1h")
    world.topic.publish([line("c", partition=0)])
    world.topic.store_offset(0, "consumer", "slow", 0)
    world.clock.now_ns = START + 2 * HOUR
    assert applied(world).removed_messages == 1
    assert world.open_base() == {0: 2, 1: 1}
    assert [place[3] for place in world.places()] == [b"a", b"c"]
    assert "has read up to 0" in world.topic.explain(0).sentence
    world.topic.store_offset(0, "consumer", "slow", 1)
    assert applied(world).removed_messages == 2


def test_a_saved_plan_seals_and_takes_what_it_said(world: World, tmp_path: Path) -> None:
    world.configure(roll_after="1h")
    world.clock.now_ns = START + HOUR
    world.topic.plan().save(tmp_path / "plan.json")
    plans = load_plans(str(tmp_path / "plan.json"))
    world.clock.now_ns += SECOND
    [outcome] = world.warehouse.apply_plans(plans, Guards())
    assert outcome.value is not None, outcome.error
    assert outcome.value.removed_messages == 1
    assert world.places() == [(1, 0, 0, b"b")]


def test_a_saved_plan_does_not_take_a_part_of_a_segment(world: World) -> None:
    world.configure(roll_after="1h")
    plan = world.topic.plan(as_of=START + HOUR)
    assert plan.plan.removed_messages == 1
    world.topic.publish([line("c", partition=0)])
    world.clock.now_ns = START + 2 * HOUR
    with pytest.raises(StalePlanError, match="messages were stored in segment 0 of partition 0"):
        plan.apply()
    assert len(world.places()) == 3


def test_messages_are_explained_as_the_pass_sees_them(world: World) -> None:
    assert "active" in world.topic.explain(0, as_of=START + 2 * HOUR).sentence
    world.configure(roll_after="1h")
    told = world.topic.explain(0, as_of=START + 2 * HOUR)
    assert (told.goes, told.rule) == (True, "message_expiry")


def test_delete_segments_counts_what_is_sealed_already(world: World) -> None:
    world.configure(roll_after="1h")
    world.clock.now_ns = START + HOUR
    assert world.topic.delete_segments(0, 9).plan.is_empty
    applied(world)


def test_an_estimate_says_the_same(world: World) -> None:
    world.configure(roll_after="1h")
    world.clock.now_ns = START + 2 * HOUR
    [outcome] = world.warehouse.plan([NAME])
    assert outcome.value is not None
    assert outcome.value.removed_messages == 2
