"""The next due instant: nothing is removed before it, and it is not trivially early."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.core.spans import spans_of
from retention.rules.jetstream.evaluate import evaluate
from retention.rules.jetstream.next_due import next_due
from retention.schemas.deadlines import NEVER
from tests.support.laws import law
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

LATEST = 60


def due(world: World, policy: Policy, as_of_ns: int) -> int | None:
    decided = decide(world, policy, as_of_ns)
    return next_due(decided, policy, world.inventory.counters.open_base)


def world(*times: int) -> World:
    """One sealed segment per message, and an empty open one."""
    numbered = enumerate(times, start=1)
    files = [(seq, (Message(seq, "a", ts_ns, 1, never=False),)) for seq, ts_ns in numbered]
    return World(tuple(files), open_base=100)


@law
@given(worlds, policies, st.booleans(), instants)
def test_nothing_goes_before_the_next_due_instant(
    world: World, policy: Policy, whole: bool, as_of_ns: int
) -> None:
    policy = in_segments(policy, whole=whole)
    assume(world.files and plan_of(world, policy, as_of_ns).is_empty)
    instant = due(world, policy, as_of_ns)
    assume(instant is not None)
    assert instant is not None
    assert plan_of(world, policy, min(instant - 1, LATEST)).is_empty


def test_the_first_message_is_due_when_it_is_as_old_as_the_limit() -> None:
    laid = world(10, 20, 30)
    assert due(laid, Policy(max_age_ns=7), 12) == 17
    assert not plan_of(laid, Policy(max_age_ns=7), 17).is_empty


def test_an_old_message_behind_a_young_one_is_due_with_that_one() -> None:
    laid = world(30, 1, 40)
    assert due(laid, Policy(max_age_ns=7), 12) == 37


def test_each_old_message_is_due_by_itself() -> None:
    laid = world(30, 1, 40)
    policy = Policy(max_age_ns=20, expiry="each")
    assert due(laid, policy, 12) == 21
    assert due(laid, replace(policy, whole_segments=True), 12) == 21


def test_a_message_among_those_of_another_file_is_due_when_the_ones_before_it_are_passed() -> None:
    lasting = tuple(Message(seq, "a", ts_ns, 1, never=True) for seq, ts_ns in ((1, 1), (3, 100)))
    laid = World(((1, lasting), (1, (Message(2, "a", 2, 1, never=False),))), open_base=1)
    policy, files = Policy(max_age_ns=10), laid.inventory.files
    for apart in (None, np.ones(2, dtype=bool)):
        decided = evaluate(spans_of(files, apart), policy, 11)
        instant = next_due(decided, policy, {0: 1})
        assert instant is not None
        assert instant <= 12


def test_a_whole_segment_is_due_with_its_youngest_message() -> None:
    pair = (Message(1, "a", 3, 1, never=False), Message(2, "a", 9, 1, never=False))
    laid = World(((1, pair),), open_base=5)
    assert due(laid, Policy(max_age_ns=10, whole_segments=True), 14) == 19
    assert due(replace(laid, open_base=1), Policy(max_age_ns=10, whole_segments=True), 14) == NEVER


def test_messages_that_never_expire_are_never_due() -> None:
    lasting = World(((1, (Message(1, "a", 3, 1, never=True),)),), open_base=1)
    assert due(lasting, Policy(max_age_ns=10), 50) == NEVER


def test_without_a_limit_of_age_only_a_commit_makes_something_due() -> None:
    assert due(world(1, 2), Policy(max_msgs=5), 9) == NEVER


def test_what_another_rule_took_some_of_is_not_foretold() -> None:
    three = tuple(Message(seq, "a", seq, 1, never=False) for seq in (1, 2, 3))
    policy = Policy(max_age_ns=10, max_msgs=2, whole_segments=True)
    assert due(World(((1, three),), open_base=5), policy, 4) is None
