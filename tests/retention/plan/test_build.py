from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from retention.core.policy import Policy
from tests.support.laws import law
from tests.support.worlds import (
    World,
    decide,
    instants,
    plan_of,
    policies,
    removed_by,
    update,
    worlds,
)


@law
@given(worlds, policies, instants)
def test_a_plan_removes_exactly_what_the_server_would(
    world: World, policy: Policy, as_of: int
) -> None:
    expected = update(world.messages, policy, as_of)
    plan = plan_of(world, policy, as_of)
    gone = removed_by(world, plan)
    assert set(gone) == set(expected)
    assert plan.by_rule == dict(Counter(expected.values()))
    assert all(rule in (None, expected[seq]) for seq, rule in gone.items())
    sizes = {m.seq: m.size for m in world.messages}
    assert plan.removed_messages == len(expected)
    assert plan.removed_bytes == sum(sizes[seq] for seq in expected)


@law
@given(worlds, policies, instants)
def test_a_second_pass_at_the_same_instant_removes_nothing(
    world: World, policy: Policy, as_of: int
) -> None:
    # A deadline may remove the young message that ended the age scan; then the next scan goes further.
    assume(policy.max_age_ns is None or not policy.allow_msg_ttl)
    # Expiry may expose a deletion.
    expires = policy.max_age_ns is not None or policy.allow_msg_ttl
    assume(policy.delete_retention_ns is None or not expires)
    after = world.without(set(removed_by(world, plan_of(world, policy, as_of))))
    assert plan_of(after, policy, as_of).is_empty


@law
@given(worlds, policies, instants, st.integers(0, 20))
def test_a_later_instant_never_lets_less_go(
    world: World, policy: Policy, as_of: int, later: int
) -> None:
    now = set(removed_by(world, plan_of(world, policy, as_of)))
    assert now <= set(removed_by(world, plan_of(world, policy, as_of + later)))


@law
@given(worlds, policies, instants)
def test_whole_segments_go_exactly_when_every_message_of_a_sealed_one_would(
    world: World, policy: Policy, as_of: int
) -> None:
    expected = update(world.messages, policy, as_of)
    bases = {base for base, _ in world.files if base < world.open_base}
    held = {base: {m.seq for b, file in world.files if b == base for m in file} for base in bases}
    whole = set().union(*(seqs for seqs in held.values() if seqs <= set(expected)))
    plan = plan_of(world, replace(policy, whole_segments=True), as_of)
    assert set(removed_by(world, plan)) == whole
    assert set(plan.actions.files["action"].to_pylist()) <= {"drop"}


@law
@given(worlds, policies, instants)
def test_metadata_decides_as_rows_would(world: World, policy: Policy, as_of: int) -> None:
    expected = update(world.messages, policy, as_of)
    decided = decide(world, policy, as_of)
    files = world.inventory.files["path"].to_pylist()
    for span, asked in enumerate(decided.ask):
        first, end = decided.spans.first_file[span : span + 2]
        seqs = {s for path in files[first:end] for s in world.rows(path)["seq"].to_pylist()}
        if decided.gone[span]:
            assert seqs <= set(expected)
        elif not asked and not any(one.whole[span] for one in decided.decisions):
            assert not seqs & set(expected)
