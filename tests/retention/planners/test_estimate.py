from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.plan.estimate_bounds import bounds_of
from retention.plan.plan import Plan
from tests.support.laws import law
from tests.support.marked import marking, marking_instants
from tests.support.worlds import World, decide, in_segments, instants, plan_of, policies, worlds


@law
@given(worlds, policies, instants, st.booleans())
def test_an_estimate_contains_the_exact_numbers(
    world: World, policy: Policy, as_of: int, whole: bool
) -> None:
    check_bounds(world, in_segments(policy, whole=whole), as_of)


@law
@given(worlds, marking, marking_instants)
def test_an_estimate_knows_that_markers_evict_and_are_refused(
    world: World, policy: Policy, as_of: int
) -> None:
    check_bounds(world, policy, as_of)


def check_bounds(world: World, policy: Policy, as_of: int) -> None:
    found = bounds_of(world.inventory, policy, as_of, decide(world, policy, as_of)).as_json()
    plan: Plan = plan_of(world, policy, as_of)
    exact = {
        "removed_messages": plan.removed_messages,
        "removed_bytes": plan.removed_bytes,
        **{f"segments.{name}": count for name, count in vars(plan.header.segments).items()},
        **{f"by_rule.{rule}": count for rule, count in plan.by_rule.items()},
    }
    for name, number in exact.items():
        bounds = found
        for part in name.split("."):
            bounds = bounds[part]
        assert bounds["lower"] <= number <= bounds["upper"], name
    for rule, bounds in found["by_rule"].items():
        assert bounds["lower"] <= plan.by_rule.get(rule, 0), rule
