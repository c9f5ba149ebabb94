from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.apply.saved_plan import apply_plan
from retention.apply.undo import undo_run
from retention.context.context import OpenedStream
from retention.core.policy import ConsumerProtection, Policy
from retention.engines.select import Engines
from retention.errors import RefusedError, StalePlanError
from retention.inspect.state import state_of
from retention.interest.edit import delete_consumer
from retention.plan.build import make_plan
from retention.plan.consumer_snapshot import ConsumerSnapshot
from retention.plan.plan import Plan
from retention.plan.planfile import load_plans, save_plans
from retention.plan.protected import ProtectedFor, ProtectedMessages
from retention.plan.remaining import all_remaining
from retention.planners.consumer_protection import (
    ProtectionOutcome,
    missing_consumers,
    protect,
    protection_of,
)
from retention.planners.explain import explain
from retention.planners.shown import plan_stream
from retention.rules.jetstream.interest import Interest
from retention.views.text import plan_text, report_text
from tests.retention.planners.test_interest import left, progress, stand
from tests.support import holds
from tests.support.interests import interests_of
from tests.support.laws import law
from tests.support.laying import SECOND, START, File, Laid, even_segments, lay, warehouse_with
from tests.support.worlds import (
    World,
    asks,
    decide,
    instants,
    policies,
    removed_by,
    update,
    worlds,
)

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
LOCAL = Engines("local")
ALL = {"consumers": "all", "max_age": "1h"}

EVEN = even_segments(4, 10)
LATE_AND_EARLY = [
    File(1, [Laid(1), Laid(2, ts_ns=AS_OF), Laid(3), Laid(4)]),
    File(5, [Laid(5), Laid(6)]),
]

Make = Callable[..., OpenedStream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream of four segments of ten messages on s.0, s.1 and s.2 in turn, with a limit of five."""

    def made(laid: Sequence[File] = EVEN, **settings: Any) -> OpenedStream:
        wanted: dict[str, Any] = {"max_msgs": 5, "hold_for_consumers": ALL} | settings
        opened = warehouse_with(tmp_path, request.param, NOW, **wanted).stream("ORDERS").opened
        if not opened.store.exists():
            lay(opened, laid)
        return opened

    return made


def test_limits_leave_alone_what_consumers_need_and_take_the_rest(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 25, 24), "s.0")
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert plan.by_rule == {"max_msgs": 31}
    assert plan.held == ProtectedMessages(
        "hold", 4, 4 * 34, (ProtectedFor("billing", "max_msgs", 4, 4 * 34, START + 24 * SECOND),)
    )
    report = apply_now(opened, AS_OF, LOCAL, Guards())
    assert report.as_json()["held"] == plan.held.as_json()
    assert left(opened) == [24, 27, 30, 33, 36, 37, 38, 39, 40]
    again = plan_stream(opened, AS_OF, LOCAL)
    assert again.is_empty
    assert again.held == plan.held


def test_what_is_held_goes_once_it_is_settled(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(0, 0))
    assert apply_now(opened, AS_OF, LOCAL, Guards()).removed_messages == 0
    stand(opened, "billing", progress(38, 38))
    assert apply_now(opened, AS_OF, LOCAL, Guards()).by_rule == {"max_msgs": 35}
    assert left(opened) == [36, 37, 38, 39, 40]


def test_metadata_tells_of_segments_that_are_held_or_go_whole(make: Make) -> None:
    opened = make(max_msgs=10)
    stand(opened, "billing", progress(10, 10))
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert (plan.by_rule, plan.header.segments.dropped, plan.header.read.files) == (
        {"max_msgs": 10},
        1,
        0,
    )
    assert plan.held is not None
    assert plan.held.messages == 20


def test_a_segment_that_two_rules_would_take_is_held_from_both(make: Make) -> None:
    opened = make(max_msgs=25, max_bytes=20 * 34)
    stand(opened, "billing", progress(0, 0))
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert plan.held is not None
    told = {one.rule: one.messages for one in plan.held.by_consumer}
    assert told == {"max_msgs": 15, "max_bytes": 5}


@pytest.mark.parametrize("filters", [(), ("a",)])
def test_nothing_is_held_from_an_age_scan_that_ends_before(
    make: Make, filters: tuple[str, ...]
) -> None:
    opened = make(max_msgs=5, max_age="10s", laid=LATE_AND_EARLY)
    stand(opened, "billing", progress(0, 0), *filters)
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert plan.held is not None
    assert {one.rule: one.messages for one in plan.held.by_consumer} == {"max_msgs": 1}


def test_with_warn_limits_win_and_the_plan_says_for_whom_it_would_have_held(make: Make) -> None:
    opened = make(hold_for_consumers={"consumers": ["billing"], "action": "warn"})
    stand(opened, "billing", progress(20, 20))
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert (plan.by_rule, plan.pins.consumers) == ({"max_msgs": 35}, None)
    assert plan.held is not None
    assert (plan.held.action, plan.held.messages) == ("warn", 15)
    delete_consumer(opened, "billing")
    assert apply_plan(opened, plan, LOCAL, Guards()).removed_messages == 35


@pytest.mark.parametrize(("room", "held"), [(12 * 34 + 33, 12), (15 * 34, 15), (15 * 34 - 1, 14)])
def test_the_oldest_are_held_no_longer_where_there_is_no_room(
    make: Make, room: int, held: int
) -> None:
    opened = make(hold_for_consumers={"consumers": "all", "max_bytes": room})
    stand(opened, "billing", progress(0, 0))
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert plan.held is not None
    assert (plan.held.messages, plan.by_rule) == (held, {"max_msgs": 35 - held})
    apply_now(opened, AS_OF, LOCAL, Guards())
    assert left(opened) == list(range(36 - held, 41))


def test_a_message_is_held_until_its_age_is_reached(make: Make) -> None:
    opened = make(hold_for_consumers={"consumers": "all", "max_age": "45s"})
    stand(opened, "billing", progress(0, 0))
    apply_now(opened, AS_OF, LOCAL, Guards())
    assert left(opened) == list(range(31, 41))


def test_everything_is_held_for_one_that_is_named_and_not_there(make: Make) -> None:
    opened = make(hold_for_consumers={"consumers": ["audit"], "max_age": "1h"})
    stand(opened, "billing", progress(40, 40))
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert plan.is_empty
    assert plan.held is not None
    assert (plan.held.messages, plan.held.missing) == (35, ("audit",))
    assert "audit does not exist, so it counts as needing every message" in "\n".join(
        plan_text(plan)
    )


def test_nobody_is_everybody_where_no_consumer_is_there(make: Make) -> None:
    plan = plan_stream(make(), AS_OF, LOCAL)
    assert plan.by_rule == {"max_msgs": 35}
    assert plan.held == ProtectedMessages("hold")


def test_a_state_that_contradicts_itself_removes_nothing(make: Make) -> None:
    opened = make()
    stand(opened, "ahead", progress(41, 41))
    with pytest.raises(
        RefusedError, match=r"state of consumer ahead is impossible: .*nothing was removed"
    ):
        apply_now(opened, AS_OF, LOCAL, Guards())


def test_an_explanation_says_for_whom_a_message_is_held(make: Make) -> None:
    rule = {"consumers": "all", "max_age": "45s", "max_bytes": 2 * 34}
    opened = make(hold_for_consumers=rule)
    stand(opened, "billing", progress(0, 0), "s.0")

    def told(seq: int) -> tuple[str | None, str]:
        one = explain(opened, seq, AS_OF, LOCAL)
        return one.rule, one.arithmetic[-1].removeprefix("hold_for_consumers: ")

    assert told(33) == (None, "billing still needs it, so no limit removes it")
    assert told(35) == ("max_msgs", "no protected consumer needs it")
    assert told(36)[0] is None
    rule["max_bytes"] = 34
    opened = make(hold_for_consumers=rule)
    assert told(30) == (
        "max_msgs",
        "billing still needs it, but messages are held only until they are 45s old",
    )
    newer = "billing still needs it, but newer messages already fill the 34 B that may be held"
    opened = make(max_msgs=1, hold_for_consumers=rule)
    assert told(36) == ("max_msgs", newer)
    opened = make(hold_for_consumers={"action": "warn"})
    assert told(33) == (
        "max_msgs",
        "billing still needs it, but limits remove it nevertheless (action: warn)",
    )


def test_people_read_what_is_held(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 20))
    expected = [
        "  15 messages (510 B) held back:",
        "    billing needs 15 that max_msgs would remove, the oldest stored 2023-11-14T22:13:41Z",
    ]
    assert plan_text(plan_stream(opened, AS_OF, LOCAL))[-2:] == expected
    assert report_text(apply_now(opened, AS_OF, LOCAL, Guards()))[-2:] == expected


def test_state_counts_only_what_surely_goes(make: Make) -> None:
    opened = make(max_msgs=10)
    stand(opened, "billing", progress(10, 10))
    state = state_of(opened, AS_OF)
    assert state.lag is not None
    assert (state.lag.messages, state.forecast.due) == (10, ())


def test_a_saved_plan_keeps_what_it_holds_and_is_stale_when_a_consumer_is_deleted(
    make: Make, tmp_path: Path
) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 20))
    plan = plan_stream(opened, AS_OF, LOCAL)
    save_plans(str(tmp_path / "p.json"), [plan])
    [loaded] = load_plans(str(tmp_path / "p.json"))
    assert (loaded.held, loaded.header.policy) == (plan.held, plan.header.policy)
    with pytest.raises(StalePlanError, match=r"policy has changed .*hold "):
        apply_plan(make(hold_for_consumers=None), loaded, LOCAL, Guards())
    delete_consumer(opened, "billing")
    with pytest.raises(StalePlanError, match="edited or deleted since"):
        apply_plan(opened, loaded, LOCAL, Guards())


def test_an_undone_run_is_as_if_it_had_not_been(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 20))
    plan = plan_stream(opened, AS_OF, LOCAL)
    run = apply_now(opened, AS_OF, LOCAL, Guards()).run
    undo_run(opened, run)
    assert left(opened) == list(range(1, 41))
    assert plan_stream(opened, AS_OF, LOCAL).held == plan.held


def held_of(
    world: World,
    policy: Policy,
    as_of_ns: int,
    rule: ConsumerProtection,
    interests: Sequence[Interest],
) -> tuple[ProtectionOutcome, ProtectedMessages, Plan]:
    audience = ConsumerSnapshot(tuple(interests))
    hold = protection_of(rule, audience, as_of_ns)
    decided = decide(world, policy, as_of_ns)
    found = protect(partial(asks, world), decided, hold, rule.max_bytes)
    told = found.as_messages(rule, missing_consumers(rule, audience))
    plan = make_plan(all_remaining(world.inventory), policy, as_of_ns, found.vetoed)
    return found, told, plan


in_any_world = given(
    data=st.data(),
    world=worlds.filter(lambda world: len(world.files) > 0),
    policy=policies,
    as_of_ns=instants,
    rule=holds.rules,
)


@law
@in_any_world
def test_a_pass_takes_what_it_would_take_but_what_is_held(
    data: st.DataObject, world: World, policy: Policy, as_of_ns: int, rule: ConsumerProtection
) -> None:
    interests = data.draw(interests_of(world))
    expected = holds.spared(world, policy, as_of_ns, rule, interests)
    _, told, plan = held_of(world, policy, as_of_ns, rule, interests)
    gone = removed_by(world, plan)
    assert set(gone) == set(expected.gone)
    assert all(rule is None or rule == expected.gone[seq] for seq, rule in gone.items())
    assert plan.by_rule == Counter(expected.gone.values())
    assert told.messages == len(expected.held)
    assert told.bytes == sum(m.size for m in world.messages if m.seq in expected.held)
    assert {(one.consumer, one.rule): one.messages for one in told.by_consumer} == expected.held_for


@law
@in_any_world
def test_a_second_pass_takes_nothing_more(
    data: st.DataObject, world: World, policy: Policy, as_of_ns: int, rule: ConsumerProtection
) -> None:
    # The age scan ends at a young message that expires by its own TTL; later messages are removed by the next pass.
    assume(not policy.allow_msg_ttl or policy.max_age_ns is None)
    # Expiry may expose a deletion.
    expires = policy.max_age_ns is not None or policy.allow_msg_ttl
    assume(policy.delete_retention_ns is None or not expires)
    interests = data.draw(interests_of(world))
    first = holds.spared(world, policy, as_of_ns, rule, interests)
    left_over = world.without(set(first.gone))
    again = holds.spared(left_over, policy, as_of_ns, rule, interests)
    assert not again.gone
    assert set(update(left_over.messages, policy, as_of_ns)) <= set(first.held)
