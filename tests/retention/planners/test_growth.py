from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.core.units import DAY
from retention.plan.growth import (
    NO_GROWTH,
    Growth,
    grown,
    growth_digests,
    is_growth,
    observed_growth,
)
from retention.planners.context import PlanningContext
from retention.planners.estimate import bounds_of_passes
from tests.support.laws import law
from tests.support.worlds import (
    NEXT_SEQ,
    Message,
    World,
    WorldRows,
    in_segments,
    instants,
    plan_of,
    policies,
    removed_by,
    worlds,
)

several_instants = st.lists(instants, min_size=1, max_size=4).map(sorted)


@law
@given(worlds, policies, several_instants, st.booleans())
def test_bounds_of_an_instant_contain_what_passes_until_then_removed(
    world: World, policy: Policy, passes: list[int], whole: bool
) -> None:
    policy, left, gone = in_segments(policy, whole=whole), world, set[int]()
    for at_ns in passes:
        gone |= removed_by(left, plan_of(left, policy, at_ns)).keys()
        left = left.without(gone)
    context = PlanningContext(world.inventory, policy, passes[-1], next_seq=NEXT_SEQ)
    bounds = bounds_of_passes(context, WorldRows(world)).removed_messages
    assert bounds.lower <= len(gone) <= bounds.upper


def test_deletion_that_expires_first_takes_no_other_message_with_it() -> None:
    value = Message(1, "a", 0, 1, never=False, deadline_ns=None, silent=False, deletes=False)
    deletion = replace(value, seq=2, deadline_ns=0, deletes=True)
    world = World(((1, (value, deletion)),), open_base=1)
    policy = Policy(delete_retention_ns=1, allow_msg_ttl=True)
    context = PlanningContext(world.inventory, policy, 1, next_seq=NEXT_SEQ)
    removed = bounds_of_passes(context, WorldRows(world)).removed_messages
    assert removed.lower <= 1
    assert removed.upper == 2


@law
@given(worlds.filter(lambda world: world.files), st.integers(0, 500), st.integers(0, 3 * DAY))
def test_growth_adds_its_messages_evenly_after_those_stored(
    world: World, a_day: int, ahead_ns: int
) -> None:
    growth = Growth(float(a_day), 10.0)
    files = grown(world.inventory, growth, 100, 100 + ahead_ns).files
    later = files.filter(is_growth(files))
    assert files.filter(pc.invert(is_growth(files))).equals(world.inventory.files)
    assert (pc.sum(later["messages"], min_count=0).as_py()) == growth.amount(ahead_ns)
    if later.num_rows:
        assert pc.min(later["min_seq"]).as_py() == NEXT_SEQ
        assert later["min_seq"].to_pylist()[1:] == pc.add(later["max_seq"], 1).to_pylist()[:-1]
        assert (
            100
            < pc.min(later["min_ts_ns"]).as_py()
            <= pc.max(later["max_ts_ns"]).as_py()
            == 100 + ahead_ns
        )
        assert pc.max(pc.abs(pc.subtract(later["messages"], later["messages"][0]))).as_py() <= 1


def test_subjects_of_growth_have_the_shares_of_those_stored() -> None:
    files = pa.table({"min_seq": [1, 501], "max_seq": [500, 1000]})
    mix = pa.table({"subject": ["a", "b", "c"], "messages": [700, 290, 10]})
    digests = growth_digests(files, pa.array([3, 4]).to_numpy(), mix)
    counts = Counter[str]()
    for row in digests.to_pylist():
        counts[row["subject"]] += row["messages"]
    assert sum(counts.values()) == 1000
    assert abs(counts["a"] - 700) <= 5
    assert abs(counts["c"] - 10) <= 3
    assert set(digests["file"].to_pylist()) == {3, 4}


def test_observed_growth_counts_removed_messages_by_sequences() -> None:
    assert observed_growth(World((), 1).inventory.files) == NO_GROWTH
