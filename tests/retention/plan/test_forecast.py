"""Forecasts: later removals are within their bounds, and nothing is removed before the next due instant."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.core.prefix import TailTotals
from retention.core.units import DAY, HOUR
from retention.plan.forecast import HORIZONS_NS, NOTHING_FORETOLD, Due, Forecast, never_below
from retention.plan.forecasting import forecast
from retention.rules.jetstream.prefix_scan import ends_in_prefix, prefix_policy
from retention.schemas.deadlines import NEVER
from tests.support.laws import law
from tests.support.marked import marking, marking_instants
from tests.support.worlds import (
    Message,
    World,
    decide,
    in_segments,
    instants,
    plan_of,
    policies,
    worlds,
)

UNIT = 12 * HOUR
"""The duration of an instant of a small world; horizons are a fraction of one, two, 14 and 60 of them."""


def slow(world: World) -> World:
    """The same world in `UNIT`s instead of nanoseconds."""
    files = [(base, tuple(map(_slow, messages))) for base, messages in world.files]
    return World(tuple(files), world.open_base)


def _slow(one: Message) -> Message:
    deadline_ns = None if one.deadline_ns is None else one.deadline_ns * UNIT
    return replace(one, ts_ns=one.ts_ns * UNIT, deadline_ns=deadline_ns)


def slow_policy(policy: Policy) -> Policy:
    return replace(
        policy,
        max_age_ns=policy.max_age_ns and policy.max_age_ns * UNIT,
        delete_retention_ns=policy.delete_retention_ns and policy.delete_retention_ns * UNIT,
    )


def foretold(world: World, policy: Policy, as_of_ns: int) -> Forecast:
    return forecast(world.inventory, policy, as_of_ns, decide(world, policy, as_of_ns))


def check_due(world: World, policy: Policy, ahead: Forecast) -> None:
    """Compare forecast losses with plans of the whole stream."""
    for one in ahead.due:
        plan = plan_of(world, policy, one.by_ns)
        assert one.messages_at_least <= plan.removed_messages <= one.messages_at_most
        assert one.bytes_at_least <= plan.removed_bytes <= one.bytes_at_most


def check(world: World, policy: Policy, as_of_ns: int, ahead: Forecast) -> None:
    """Compare a forecast with plans of the whole stream."""
    check_due(world, policy, ahead)
    instant = 100 * UNIT if ahead.next_due_ns is None else ahead.next_due_ns
    event("now" if instant == as_of_ns else f"never: {ahead.next_due_ns is None}")
    for quiet in {as_of_ns, (as_of_ns + instant) // 2, instant - 1} if instant > as_of_ns else ():
        assert plan_of(world, policy, quiet).is_empty


@law
@given(worlds, policies, instants, st.booleans())
def test_least_amounts_never_fall_and_are_not_below_what_goes_at_once(
    world: World, policy: Policy, as_of: int, whole: bool
) -> None:
    policy = in_segments(slow_policy(policy), whole=whole)
    world, as_of_ns = slow(world), as_of * UNIT
    now = plan_of(world, policy, as_of_ns)
    ahead = foretold(world, policy, as_of_ns)
    risen = never_below(ahead, policy, now.removed_messages, now.removed_bytes)
    check_due(world, policy, risen)
    least = [(one.messages_at_least, one.bytes_at_least) for one in risen.due]
    event(f"risen: {risen != ahead}")
    if least and policy.subject_delete_marker_ttl_ns is None:
        assert least[0] == (now.removed_messages, now.removed_bytes)
        assert [sorted(amounts) for amounts in zip(*least, strict=True)] == [
            list(amounts) for amounts in zip(*least, strict=True)
        ]


@law
@given(worlds, policies, instants, st.booleans())
def test_a_forecast_contains_what_a_pass_takes_at_that_instant(
    world: World, policy: Policy, as_of: int, whole: bool
) -> None:
    policy = in_segments(slow_policy(policy), whole=whole)
    world, as_of_ns = slow(world), as_of * UNIT
    ahead = foretold(world, policy, as_of_ns)
    if not (policy.max_age_ns or policy.allow_msg_ttl or policy.delete_retention_ns):
        assert ahead == NOTHING_FORETOLD
        return
    assert [one.by_ns - as_of_ns for one in ahead.due] == [0, *HORIZONS_NS]
    check(world, policy, as_of_ns, ahead)


def test_a_deletion_may_take_younger_messages_of_another_file_along() -> None:
    rows = [
        Message(seq, "a", ts_ns, 1, never=False) for seq, ts_ns in ((1, 0), (3, 0), (2, 2), (4, 2))
    ]
    deletion = Message(5, "a", 0, 1, never=False, deletes=True)
    world = slow(World(((1, (*rows[:2], deletion)), (1, tuple(rows[2:]))), 1))
    policy = slow_policy(Policy(delete_retention_ns=1))
    check_due(world, policy, foretold(world, policy, 0))


@law
@given(worlds, marking, marking_instants)
def test_a_forecast_contains_what_goes_where_markers_evict_and_are_refused(
    world: World, policy: Policy, as_of: int
) -> None:
    world, policy = slow(world), slow_policy(policy)
    check(world, policy, as_of * UNIT, foretold(world, policy, as_of * UNIT))


@law
@given(worlds, policies, instants, st.booleans(), st.integers(1, 3))
def test_a_forecast_from_the_oldest_segments_holds_for_the_whole_stream(
    world: World, policy: Policy, as_of: int, whole: bool, segments: int
) -> None:
    policy = replace(
        slow_policy(policy),
        whole_segments=whole,
        max_msgs_per_subject=None,
        max_subjects=None,
        delete_retention_ns=None,
        allow_msg_ttl=False,
    )
    policy = replace(policy, max_age_ns=policy.max_age_ns or 3 * UNIT)
    world, as_of_ns = slow(world), as_of * UNIT
    bases = sorted({base for base, _ in world.files})[:segments]
    head = World(tuple(file for file in world.files if file[0] in bases), world.open_base)
    rest = [one for base, file in world.files if base not in bases for one in file]
    later = TailTotals(len(rest), len(rest), sum(one.size for one in rest))
    seen = prefix_policy(policy, later.messages, later.bytes)
    if seen is None:
        return
    decided = decide(head, seen, as_of_ns)
    if ends_in_prefix(decided):
        event("seen from the head")
        check(world, policy, as_of_ns, forecast(head.inventory, policy, as_of_ns, decided, later))


def test_certain_numbers_are_said_exactly() -> None:
    files = [(n, (Message(n, "a", n * DAY, 10, never=False),)) for n in (1, 2, 3, 20)]
    ahead = foretold(World(tuple(files), 20), Policy(max_age_ns=5 * DAY), 5 * DAY)
    assert ahead.next_due_ns == 6 * DAY
    numbers = [(one.messages_at_least, one.bytes_at_most) for one in ahead.due]
    assert numbers == [(0, 0), (0, 0), (1, 10), (3, 30), (4, 40)]
    assert ahead.as_json()["due"][2] == {
        "by_ns": 6 * DAY,
        "messages_at_least": 1,
        "messages_at_most": 1,
        "bytes_at_least": 10,
        "bytes_at_most": 10,
    }


def test_the_scan_comes_later_to_files_that_interleave() -> None:
    old, young = Message(1, "a", DAY, 10, never=False), Message(2, "a", 10 * DAY, 10, never=False)
    due = Message(3, "a", DAY, 10, never=False, deadline_ns=2 * DAY)
    world = World(((1, (old, due, replace(old, seq=5))), (1, (young, replace(young, seq=4)))), 1)
    policy = Policy(max_age_ns=5 * DAY, allow_msg_ttl=True)
    ahead = foretold(world, policy, 3 * DAY)
    check_due(world, policy, ahead)
    assert (ahead.due[0].messages_at_most, ahead.due[3].messages_at_most) == (1, 5)


def test_what_never_expires_never_falls_due() -> None:
    lasting = World(((1, (Message(1, "a", 3, 1, never=True),)),), open_base=1)
    ahead = foretold(lasting, Policy(max_age_ns=10, allow_msg_ttl=True), 50)
    assert ahead.next_due_ns is None
    assert {one.messages_at_most for one in ahead.due} == {0}


def test_horizons_end_with_time() -> None:
    one = World(((1, (Message(1, "a", 3, 1, never=True),)),), open_base=1)
    ahead = foretold(one, Policy(max_age_ns=10), NEVER - 2 * DAY)
    assert [due.by_ns for due in ahead.due[2:]] == [NEVER - DAY, NEVER - 1, NEVER - 1]
    assert ahead.due[-1] == Due(NEVER - 1, 0, 0, 0, 0)
