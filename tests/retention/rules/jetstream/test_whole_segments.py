from __future__ import annotations

import numpy as np
from hypothesis import given

from retention.core.policy import Policy
from retention.plan.build import make_plan
from retention.plan.remaining import all_remaining
from retention.rules.fold import Vetoed
from retention.rules.jetstream.whole_segments import unread_answers
from tests.support.laws import law
from tests.support.worlds import (
    Message,
    World,
    answers,
    decide,
    in_segments,
    instants,
    policies,
    worlds,
)


@law
@given(world=worlds, policy=policies, as_of_ns=instants)
def test_what_is_not_read_changes_no_plan_of_whole_segments(
    world: World, policy: Policy, as_of_ns: int
) -> None:
    whole = in_segments(policy, whole=True)
    decided = decide(world, whole, as_of_ns)
    read = answers(world, decided)
    known = unread_answers(decided)
    spans = {answer.span for answer in known}
    assert spans <= set(np.flatnonzero(decided.ask).tolist())
    mixed = known + [answer for answer in read if answer.span not in spans]
    full = make_plan(all_remaining(world.inventory), whole, as_of_ns, Vetoed(decided, read))
    spared = make_plan(all_remaining(world.inventory), whole, as_of_ns, Vetoed(decided, mixed))
    assert spared.plan_id == full.plan_id
    assert spared.actions.files.equals(full.actions.files)
    assert spared.header.segments == full.header.segments


def test_a_cut_inside_a_young_segment_and_a_mixed_segment_are_not_read() -> None:
    first = tuple(Message(seq, "a", seq, 1, never=False) for seq in range(1, 6))
    second = tuple(Message(seq, "a", seq, 1, never=False) for seq in range(6, 11))
    world = World(((1, first), (6, second)), open_base=11)
    for policy in (
        Policy(max_msgs=3, max_age_ns=10, whole_segments=True),
        Policy(max_age_ns=3, whole_segments=True),
        Policy(max_msgs_per_subject=2, whole_segments=True),
    ):
        decided = decide(world, policy, as_of_ns=11)
        assert decided.ask.any()
        assert {answer.span for answer in unread_answers(decided)} == set(
            np.flatnonzero(decided.ask)
        )


def test_a_segment_whose_only_young_message_is_trimmed_is_read_since_the_scan_goes_on() -> None:
    young = Message(1, "a", 20, 1, never=False)
    never = tuple(Message(seq, "a", 0, 1, never=True) for seq in (2, 3))
    old = tuple(Message(seq, "a", 0, 1, never=False) for seq in (4, 5, 6))
    world = World(((1, (young, *never)), (4, old)), open_base=7)
    policy = Policy(max_msgs=5, max_age_ns=10, whole_segments=True)
    decided = decide(world, policy, as_of_ns=21)
    assert unread_answers(decided) == []
    vetoed = Vetoed(decided, answers(world, decided))
    plan = make_plan(all_remaining(world.inventory), policy, 21, vetoed)
    assert plan.actions.files["segment"].to_pylist() == [4]
