"""What a pass remembers of the files that it left: what the next run would find out, or nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retention.api.warehouse import Warehouse
from retention.core.policy import Policy
from retention.engines.select import Engines
from retention.planners.after_pass import CommittedPass, plan_nothing, remember_left
from retention.planners.cached import Planned, plan_pass
from retention.planners.context import PlanningContext
from retention.planners.retention import Planning, plan_prefix
from retention.ports import Snapshot, Swap, TailTotals
from retention.rules.jetstream.next_due import next_due
from retention.stores.delta.store import DeltaStore
from tests.support.laws import law
from tests.support.laying import SECOND, START, File, Laid, lay, warehouse_with
from tests.support.worlds import (
    World,
    WorldRows,
    in_segments,
    instants,
    plan_of,
    policies,
    removed_by,
    worlds,
)

NOW = START + 20 * SECOND
BRIEF = b"NATS/1.0\r\nNats-TTL: 15s\r\n\r\n"
MESSAGE = '{"subject": "a", "data": "x"}'


def due(planning: Planning, world: World) -> int | None:
    return next_due(planning.decided, planning.plan.header.policy, {0: world.open_base})


@law
@given(worlds, policies, st.booleans(), instants, st.integers(0, 4))
def test_what_is_decided_without_rows_is_what_a_fresh_plan_says(
    world: World, policy: Policy, whole: bool, as_of_ns: int, later: int
) -> None:
    policy = in_segments(policy, whole=whole)
    gone = removed_by(world, plan_of(world, policy, as_of_ns))
    left = world.without(set(gone))
    bases = sorted({base for base, _ in left.files})
    cut = bases[len(bases) - min(later, len(bases)) :]
    tail = [file for base, file in left.files if base in cut]
    head = World(tuple(each for each in left.files if each[0] not in cut), left.open_base)
    totals = TailTotals(len(cut), sum(map(len, tail)), sum(m.size for file in tail for m in file))
    found = plan_nothing(head.inventory, totals, policy, as_of_ns)
    assume(found is not None)
    assert found is not None
    context = PlanningContext(head.inventory, policy, as_of_ns)
    fresh = plan_prefix(context, totals, WorldRows(head))
    assert fresh is not None
    assert fresh.plan.is_empty
    assert found.plan.header == fresh.plan.header
    assert found.plan.overdue == fresh.plan.overdue or totals.segments
    assert due(found, head) == due(fresh, head)


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
    "half of a file": {"max_age": 15 * SECOND},
    "each": {"max_age": 15 * SECOND, "expiry": "each"},
    "deadlines": {"allow_msg_ttl": True},
    "vectors": {"max_age": 15 * SECOND, "vectors": True},
    "count and age": {"max_age": 100 * SECOND, "max_msgs": 5},
    "whole segments": {"max_age": 15 * SECOND, "whole_segments": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_pass_remembers_what_a_fresh_plan_would(tmp_path: Path, kind: str, case: str) -> None:
    if kind == "parquet" and case == "vectors":
        pytest.skip("plain Parquet has no vectors")
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
        {"max_msgs_per_subject": 2},
        {"max_age": 15 * SECOND, "allow_msg_ttl": True, "subject_delete_marker_ttl": 60 * SECOND},
    ],
)
def test_what_needs_rows_or_assigned_sequences_is_not_remembered(
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

    def late(opened: Any, planned: Planned, done: CommittedPass) -> None:
        warehouse.stream("ORDERS").publish([MESSAGE])
        remember_left(opened, planned, done)

    monkeypatch.setattr("retention.apply.execute.remember_left", late)
    assert applied(warehouse) == 4
    assert remembered(tmp_path) is None


def test_a_pass_under_another_seal_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = stream(tmp_path, max_age=16 * SECOND)

    def other(opened: Any, planned: Planned, done: CommittedPass) -> None:
        remember_left(opened, planned, replace(done, base=replace(done.base, seal="other")))
        remember_left(opened, planned, replace(done, run="another run"))

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
