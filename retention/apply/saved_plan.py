"""A saved plan carried out unchanged, after a check that the table and the configuration still permit it."""

from __future__ import annotations

from dataclasses import replace

from retention.apply.carry_out import carry_out
from retention.apply.commit_guards import guarded_now
from retention.apply.execute import pinned
from retention.apply.execution import ExecutionTerms, Work, report_of
from retention.apply.guards import (
    Guards,
    check_archive,
    check_consumers,
    check_instant,
    check_policy,
    check_update,
)
from retention.apply.recover import settle_interrupted
from retention.apply.seal import check_whole, seal_aged
from retention.context.context import OpenedStream
from retention.context.maintenance import removing
from retention.context.ownership import refuse_other_owner
from retention.core.labels import labelled, on_stream
from retention.engines.select import Engines
from retention.errors import StalePlanError
from retention.history.report import RunReport
from retention.history.runs import History, history_of
from retention.interest.edit import delete_pinned, edit_declared
from retention.plan.plan import Plan
from retention.planners.cached import Planned, plan_pass
from retention.planners.request_guards import check_allowed
from retention.ports import Snapshot
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.stores.topic_settings import keep_settings


@on_stream
def apply_plan(opened: OpenedStream, plan: Plan, engines: Engines, guards: Guards) -> RunReport:
    """Apply a saved plan, unchanged.

    Raises:
        StalePlanError: its pinned files or the stream's policy have changed since.
        BusyError, RefusedError, VerificationError: as `apply_now`.
    """
    started = opened.clock()
    history = history_of(opened.warehouse, opened.name)
    if plan.header.request is None:
        refuse_other_owner(opened)
    if plan.is_empty and not opened.table.exists():
        _check(opened, history, plan, guards)
        return report_of(opened, plan, history.name_run(started), Work(), started)
    with removing(opened):
        settle_interrupted(opened, history)
        check_update(opened, history)
        existed = opened.table.exists()
        snapshot = pinned(opened, plan)
        plan = guarded_now(opened, plan, snapshot, guards)
        if plan.header.request is None and existed and opened.config.consumers:
            edit_declared(opened)
            snapshot = pinned(opened, plan)
        # After the pins: the slower of two runs is told to plan again, not that time runs backwards.
        _check(opened, history, plan, guards)
        if plan.pins.expired:
            delete_pinned(opened, plan.pins.expired)
            snapshot = pinned(opened, plan)
        if plan.header.request is None and seal_aged(opened, plan.header.as_of_ns):
            snapshot = pinned(opened, plan)
        check_whole(opened, plan, snapshot)
        check_consumers(opened, plan, snapshot)
        keep_settings(opened.root, opened.config)
        planned = _as_saved(opened, plan, snapshot, engines)
        run = history.name_run(started)
        with labelled(run=run):
            return carry_out(
                opened, planned, ExecutionTerms(engines, guards), history, run, started
            )


def _as_saved(opened: OpenedStream, plan: Plan, snapshot: Snapshot, engines: Engines) -> Planned:
    """A saved plan on the current table; a pass that replays is planned again, because its state is not saved.

    Raises:
        StalePlanError: the replay removes others now.
    """
    plan = replace(plan, header=replace(plan.header, version=snapshot.version))
    planned = Planned(plan, snapshot.counters.next_seq, snapshot)
    if plan.header.request is not None or plan.header.policy.mode != "replay":
        return planned
    again = plan_pass(opened, plan.header.as_of_ns, engines)
    if not again.plan.removes_as(plan):
        raise StalePlanError(
            f"{opened.name}: messages were stored or removed since the plan was made, and its replay removes others "
            "now; nothing was removed; plan again"
        )
    return replace(planned, snapshot=again.snapshot, goes_on=again.goes_on)


def _check(opened: OpenedStream, history: History, plan: Plan, guards: Guards) -> None:
    """Refuse a plan that the stream's current configuration or the instants of earlier passes forbid."""
    if isinstance(plan.header.request, DeleteSegments):
        check_policy(opened, plan)
    check_archive(opened, plan)
    if plan.header.request is not None:
        check_allowed(opened, plan.header.request)
        return
    check_policy(opened, plan)
    check_instant(opened, history, plan.header.as_of_ns, guards)
