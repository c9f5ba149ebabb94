"""What a pass remembers of the files that it left: what the next run would find out, or nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from retention.api.warehouse import Warehouse
from retention.core.policy import Policy
from retention.core.prefix import TailTotals
from retention.engines.select import Engines
from retention.planners.afresh import next_due_of
from retention.planners.after_pass import due_after, remember_left
from retention.planners.cached import Planned, PlannedState, plan_pass
from retention.planners.context import PlanningContext
from retention.planners.retention import Planning, plan_prefix
from retention.ports import Snapshot, Swap, VersionToken
from retention.rules.rule import SubjectFacts
from retention.stores.delta.store import DeltaStore
from tests.support.laws import law
from tests.support.laying import SECOND, START, File, Laid, lay, warehouse_with
from tests.support.worlds import (
    NEXT_SEQ,
    Message,
    World,
    WorldRows,
    in_segments,
    instants,
    plan_of,
    removed_by,
    worlds,
)

NOW = START + 20 * SECOND
LATEST = 60
BRIEF = b"NATS/1.0\r\nNats-TTL: 14s\r\n\r\n"
MESSAGE = '{"subject": "a", "data": "x"}'


def in_time_order(world: World) -> World:
    files = [
        (base, tuple(replace(m, ts_ns=m.seq, never=False) for m in file))
        for base, file in world.files
    ]
    return World(tuple(files), world.open_base)


ageing = st.builds(
    Policy,
    max_msgs=st.none() | st.none() | st.integers(5, 10),
    max_age_ns=st.integers(1, 20),
    expiry=st.sampled_from(["head", "each"]),
    allow_msg_ttl=st.booleans(),
)


@law
@given(
    worlds | worlds.map(in_time_order),
    ageing,
    st.booleans(),
    instants,
    st.sampled_from([0, 0, 1, 2]),
)
def test_what_a_pass_remembers_is_what_a_fresh_plan_of_its_files_says(
    world: World, policy: Policy, whole: bool, as_of_ns: int, later: int
) -> None:
    policy = in_segments(policy, whole=whole)
    head, tail = parted(world, later)
    planning = plan_head(head, tail, policy, as_of_ns)
    if planning is None or planning.plan.is_empty:
        return
    counters = head.inventory.counters
    found = due_after(state_of(planning), planning.plan)
    event(f"remembered: {found is not None}")
    if found is None:
        return
    left = head.without(set(removed_by(head, planning.plan)))
    fresh = plan_head(left, tail, policy, as_of_ns)
    assert fresh is not None
    assert fresh.plan.is_empty
    kept = fresh.plan.header.segments.kept
    event(f"tail: {tail.segments > 0}, whole segments: {whole}")
    assert found == next_due_of(fresh.plan, fresh.decided, counters, tail, kept)
    assert plan_of(left, policy, min(found.due_ns - 1, LATEST)).is_empty or tail.segments


def state_of(planning: Planning) -> PlannedState:
    counters = planning.inventory.counters
    return PlannedState(VersionToken(1, "seal"), planning.decided, counters, planning.tail)


def test_a_file_left_among_dropped_ones_is_not_forgotten() -> None:
    def message(seq: int, ts_ns: int, *, never: bool = False) -> Message:
        return Message(seq, "a", ts_ns, 1, never=never)

    first, second = (message(1, 1), message(3, 1)), (message(2, 1, never=True), message(4, 6))
    world = World(((1, first), (1, second), (5, (message(5, 20),))), open_base=5)
    planning = plan_head(world, TailTotals(), Policy(max_age_ns=5), 8)
    assert planning is not None
    assert set(removed_by(world, planning.plan)) == {1, 3}
    assert due_after(state_of(planning), planning.plan) is None


def test_rules_that_know_subjects_are_not_decided_without_them() -> None:
    files = [(seq, (Message(seq, "a", 10 * seq, 1, never=False),)) for seq in (1, 2)]
    world, policy = World(tuple(files), open_base=2), Policy(max_age_ns=5)
    planning = plan_head(world, TailTotals(), policy, 16)
    assert planning is not None
    state = state_of(planning)
    due = due_after(state, planning.plan)
    assert due is not None
    assert due.due_ns == 25
    subjects = SubjectFacts(
        excess=WorldRows(world).excess(planning.remaining, state.decided.spans, 1)
    )
    known = replace(state, decided=replace(state.decided, subjects=subjects))
    assert due_after(known, planning.plan) is None


def parted(world: World, later: int) -> tuple[World, TailTotals]:
    """The oldest segments of a world, and the totals of up to `later` others."""
    bases = sorted({base for base, _ in world.files})
    cut = bases[max(len(bases) - later, 0) :]
    tail = [message for base, file in world.files if base in cut for message in file]
    totals = TailTotals(len(cut), len(tail), sum(message.size for message in tail))
    files = tuple(each for each in world.files if each[0] not in cut)
    return World(files, world.open_base), totals


def plan_head(world: World, tail: TailTotals, policy: Policy, as_of_ns: int) -> Planning | None:
    context = PlanningContext(world.inventory, policy, as_of_ns, next_seq=NEXT_SEQ)
    return plan_prefix(context, tail, WorldRows(world))


def stream(folder: Path, kind: str = "delta", **config: Any) -> Warehouse:
    warehouse = warehouse_with(folder, kind, NOW, **config)
    messages = [
        Laid(seq, "abc"[seq % 2 + (seq == 1)], START + seq * SECOND, headers=BRIEF)
        for seq in range(1, 9)
    ]
    files = [File(first, messages[first - 1 : first + 1]) for first in (1, 3, 5, 7)]
    lay(warehouse.stream("ORDERS").opened, files)
    return warehouse


def applied(warehouse: Warehouse) -> int:
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    return outcome.value.removed_messages


def planned(warehouse: Warehouse) -> Planned:
    with Engines("local") as engines:
        return plan_pass(warehouse.stream("ORDERS").opened, NOW, engines)


def remembered(folder: Path) -> dict[str, Any] | None:
    """The content of the memory; it is deleted, so that the next plan is made afresh."""
    places = [*folder.rglob("due.json")]
    content = [json.loads(place.read_bytes()) for place in places]
    for place in places:
        place.unlink()
    return content[0] if content else None


CASES: dict[str, dict[str, Any]] = {
    "whole files": {"max_age": 16 * SECOND},
    "each": {"max_age": 16 * SECOND, "expiry": "each"},
    "deadlines": {"allow_msg_ttl": True},
    "count and age": {"max_age": 100 * SECOND, "max_msgs": 4},
    "whole segments": {"max_age": 15 * SECOND, "whole_segments": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_pass_remembers_what_a_fresh_plan_would(tmp_path: Path, kind: str, case: str) -> None:
    warehouse = stream(tmp_path, kind, **CASES[case])
    assert applied(warehouse)
    found = remembered(tmp_path)
    assert planned(warehouse).plan.is_empty
    afresh = remembered(tmp_path)
    assert found == afresh if kind == "delta" else found in (None, afresh)
    assert kind == "parquet" or found is not None


@pytest.mark.parametrize(
    "config",
    [
        {"max_age": 15 * SECOND},
        {"max_age": 15 * SECOND, "vectors": True},
        {"max_msgs_per_subject": 2},
        {"max_age": 15 * SECOND, "allow_msg_ttl": True, "subject_delete_marker_ttl": 60 * SECOND},
    ],
)
def test_what_needs_rows_subjects_or_sequences_is_not_remembered(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    assert applied(stream(tmp_path, **config))
    assert remembered(tmp_path) is None


def test_a_pass_overtaken_by_an_append_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = stream(tmp_path, max_age=16 * SECOND)
    commit = DeltaStore.commit

    def overtaken(store: DeltaStore, swap: Swap, snapshot: Snapshot) -> int:
        with monkeypatch.context() as patched:
            patched.setattr(DeltaStore, "commit", commit)
            warehouse.stream("ORDERS").publish([MESSAGE])
        return commit(store, swap, snapshot)

    monkeypatch.setattr(DeltaStore, "commit", overtaken)
    assert applied(warehouse) == 4
    assert remembered(tmp_path) is None


def test_a_pass_followed_by_an_append_at_once_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = stream(tmp_path, max_age=16 * SECOND)

    def late(*of_run: Any) -> None:
        warehouse.stream("ORDERS").publish([MESSAGE])
        remember_left(*of_run)

    monkeypatch.setattr("retention.apply.execute.remember_left", late)
    assert applied(warehouse) == 4
    assert remembered(tmp_path) is None


def test_a_pass_under_another_seal_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = stream(tmp_path, max_age=16 * SECOND)

    def other(opened: Any, planned: Planned, run: str, base: Snapshot, version: int) -> None:
        remember_left(opened, planned, run, replace(base, seal="other"), version)
        remember_left(opened, planned, run, replace(base, follows=False), version)
        remember_left(opened, planned, "another run", base, version)

    monkeypatch.setattr("retention.apply.execute.remember_left", other)
    assert applied(warehouse) == 4
    assert remembered(tmp_path) is None


def test_a_log_that_cannot_be_read_after_the_commit_costs_only_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = stream(tmp_path, max_age=16 * SECOND)

    def unreadable(*_: object) -> int:
        raise OSError("the disk is gone")

    monkeypatch.setattr(DeltaStore, "find_commit", unreadable)
    assert applied(warehouse) == 4
    assert remembered(tmp_path) is None
