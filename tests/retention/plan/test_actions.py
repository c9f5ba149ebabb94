from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from retention.core.policy import Policy
from retention.core.seq_ranges import ranges_in
from retention.plan.actions import FileDrop, Rewrite, SequenceUse
from retention.plan.plan import Plan
from tests.support.worlds import Message, World, plan_of


@pytest.fixture
def plan() -> Plan:
    """Of files 1 to 5, 6 to 10 and 11 to 15, the first is removed, and 6 and 7 of the second."""
    messages = [Message(seq, "a", seq, 10, never=False) for seq in range(1, 16)]
    files = tuple((at + 1, tuple(messages[at : at + 5])) for at in (0, 5, 10))
    return plan_of(World(files, 11), Policy(max_msgs=8), 30)


def test_actions_are_of_every_kind_that_does_something(plan: Plan) -> None:
    assert [type(action) for action in plan.actions] == [FileDrop, Rewrite]
    assert plan.actions.drop.files["max_seq"].to_pylist() == [5]
    assert [ranges_in(ranges).tolist() for ranges in plan.actions.rewrite.ranges()] == [[[6, 7]]]
    assert list(replace(plan.actions, sequences=(16, 18)))[-1] == SequenceUse(
        plan.actions.markers, 16, 18
    )


def test_a_file_that_loses_nothing_has_no_range(plan: Plan) -> None:
    [none, some] = replace(plan.actions.rewrite, numbers=np.array([0, 1])).ranges()
    assert (ranges_in(none).tolist(), ranges_in(some).tolist()) == ([], [[6, 7]])
