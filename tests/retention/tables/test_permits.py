"""Passes over tables that guards, instants, approvals or another configuration refuse; judged when they commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from retention.apply.approval import Approved
from retention.apply.guards import Guards
from retention.config.keeping import RunSettings
from retention.engines.local import LocalEngine
from retention.errors import RefusedError, StalePlanError
from retention.history.kinds import TableApplied
from retention.history.record import ABANDONED
from retention.storage.crash_points import Step, watched_by
from retention.tables.apply import apply_now, apply_plan
from retention.tables.plan import TablePlan
from retention.tables.undo import undo_run
from tests.retention.tables.tables import NOW, ROWS, Events, events

DIGEST = "a" * 64


def guarded(folder: Path, **settings: object) -> Events:
    """A table of 400 rows with some settings of runs."""
    table = events(folder, vectors=True)
    return Events(replace(table.opened, settings=RunSettings.model_validate(settings)))


def half(table: Events) -> TablePlan:
    """A plan that removes 200 of the 400 rows."""
    return replace(table.plan({0: {"max_age": None}, 1: {"max_age": None}}), rows=4 * ROWS)


def test_a_guard_refuses_more_than_its_share_of_the_rows(tmp_path: Path) -> None:
    table = guarded(tmp_path, guards={"max_removed_share": 49, "min_kept_rows": 201})
    with pytest.raises(RefusedError) as refused:
        apply_plan(table.opened, half(table))
    assert str(refused.value) == (
        "events: the pass removes 200 of 400 rows (50%), more than max_removed_share 49%, and keeps 200 of 400 rows, "
        "fewer than min_kept_rows 201 (guards); nothing was changed; look at `retention plan events`, then write "
        "another limit, or let it through once with --allow-large"
    )
    report = apply_plan(table.opened, half(table), Guards(allow_large=True, reason="a move"))
    [share, kept] = report.guards or ()
    assert (share["lifted"], share["removed_rows"], share["of_rows"]) == (True, 200, 400)
    assert kept["guard"] == "min_kept_rows"
    done = table.opened.history.done(report.run)
    assert isinstance(done, TableApplied)
    assert (done.reason, len(table.ids())) == ("a move", 200)


def test_a_guard_counts_the_rows_that_are_there_at_the_commit(tmp_path: Path) -> None:
    table = guarded(tmp_path, guards={"max_removed_share": 50})
    plan = half(table)

    def others(step: Step) -> None:
        if step is Step.HISTORY_BEGUN:
            DeltaTable(table.location).delete("id >= 390")

    with (
        watched_by(others),
        pytest.raises(RefusedError, match=r"removes 200 of 390 rows \(51.3%\)"),
    ):
        apply_plan(table.opened, plan)
    assert len(table.ids()) == 390
    apply_plan(table.opened, plan, Guards(allow_large=True))
    assert [record.status for record in table.opened.history.outcomes()] == ["done", ABANDONED]


def test_an_approval_is_spent_once_and_bounds_each_limit(tmp_path: Path) -> None:
    table = guarded(tmp_path, approve=True)
    plan = half(table)
    with pytest.raises(RefusedError, match="would remove 200 rows, and `approve` lets a job"):
        apply_plan(table.opened, plan, Guards(approved={}))
    less = {"events": Approved(100, 10**9, {"max_age": 100}, DIGEST)}
    with pytest.raises(RefusedError, match=r"200 instead of 100 by max_age"):
        apply_plan(table.opened, plan, Guards(approved=less))
    approved = Guards(approved={"events": Approved(200, 10**9, {"max_age": 200}, DIGEST)})
    first = apply_plan(table.opened, plan, approved)
    again = apply_plan(table.opened, plan, approved)
    assert (again.spent_by, again.removed_rows, len(table.ids())) == (first.run, 0, 200)
    undo_run(table.later(NOW + 1).opened, first.run)
    with pytest.raises(RefusedError, match=r"was spent by run .*, which run .* undid"):
        apply_plan(table.opened, plan, approved)


def test_a_plan_of_another_policy_or_place_is_stale(tmp_path: Path) -> None:
    table = events(tmp_path, vectors=False)
    plan = half(table)
    limits = replace(plan.policy, limits=replace(plan.policy.limits, max_age_ns=2 * 10**9))
    with pytest.raises(StalePlanError, match="max_age_ns 2000000000 → 1000000000"):
        apply_plan(table.opened, replace(plan, policy=limits))
    moved = replace(table.opened, location=str(tmp_path))
    with pytest.raises(StalePlanError, match=r"was at .*events when this plan was made"):
        apply_plan(moved, plan)


def test_a_pass_is_planned_again_while_others_change_its_files(tmp_path: Path) -> None:
    table = events(tmp_path, vectors=False)
    ids = replace(table.opened.policy.columns, time=("id",), unit="s")
    policy = replace(table.opened.policy, columns=ids)
    opened, left = replace(table.opened, policy=policy), [*range(100, 200)]

    def others(step: Step) -> None:
        if step is Step.HISTORY_BEGUN and left:
            DeltaTable(table.location).delete(f"id = {left.pop()}")

    with watched_by(others), pytest.raises(StalePlanError, match="plan again"):
        apply_now(opened, 200 * 10**9, lambda _: LocalEngine(), Guards())
    del left[1:]
    with watched_by(others):
        report = apply_now(opened, 200 * 10**9, lambda _: LocalEngine(), Guards())
    assert (report.removed_rows, table.ids()) == (196, [*range(200, 400)])


def test_a_superseded_pass_is_answered_where_that_is_wanted(tmp_path: Path) -> None:
    table = events(tmp_path, vectors=False)
    apply_plan(table.opened, half(table))
    earlier = replace(table.plan({0: {"max_age": BitMap64([1])}}), as_of_ns=NOW - 5)
    report = apply_plan(table.opened, earlier, Guards(skip_superseded=True))
    assert (report.superseded_by or {})["as_of_ns"] == NOW - 1
    assert report.as_json()["removed_rows"] == 0
