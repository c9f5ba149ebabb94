"""Runs: carry out plans, one commit each; all decisions are made in lower layers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from retention.apply.approval import check_approval, planned_loss, spent_answer
from retention.apply.commit_guards import guarded_now
from retention.apply.deletion_vectors import resolving_vectors
from retention.apply.execute import ExecutionTerms, Work, carry_out, pinned, report_of
from retention.apply.guards import (
    Guards,
    check_archive,
    check_consumers,
    check_instant,
    check_policy,
    check_update,
    guarded,
    superseded_answer,
)
from retention.apply.recover import settle_interrupted
from retention.apply.seal import check_whole, seal_aged
from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.context.maintenance import removing
from retention.context.ownership import refuse_other_owner
from retention.core.labels import labelled, on_stream
from retention.core.removal_guards import NO_GUARDS
from retention.engines.select import Engines
from retention.errors import BusyError, ConflictError, StalePlanError
from retention.history.report import RunReport
from retention.history.runs import History, history_of
from retention.interest.edit import delete_expired, delete_pinned, edit_declared
from retention.plan.consumer_snapshot import Pin
from retention.plan.plan import Plan
from retention.planners.cached import Planned, plan_pass
from retention.planners.request_guards import check_allowed
from retention.planners.requests import plan_removal
from retention.ports import Snapshot
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.requests import Request
from retention.stores.lease import lease
from retention.stores.topic_settings import keep_settings

ATTEMPTS = 20
APPENDS_WAIT_S = 60.0


@on_stream
def apply_now(opened: OpenedStream, as_of_ns: int, engines: Engines, guards: Guards) -> RunReport:
    """Plan and apply in one step, under the stream's maintenance lease.

    Raises:
        BusyError: another run holds the lease, or the table keeps changing.
        RefusedError: `as_of_ns` is in the future or before the last applied instant, a guard of the table refuses, a
            server would refuse the changed configuration, a person has to approve, or another configuration owns the
            stream.
        VerificationError: a staged copy differs from the plan; nothing was committed.
    """
    started = opened.clock()
    history = history_of(opened.warehouse, opened.name)
    if (answer := spent_answer(opened, history, guards.approved, as_of_ns)) is not None:
        return answer
    if (answer := superseded_answer(opened, history, guards, as_of_ns)) is not None:
        return answer
    refuse_other_owner(opened)
    check_instant(opened, history, as_of_ns, guards)
    if not opened.store.exists():
        plan = plan_pass(opened, as_of_ns, engines).plan
        return report_of(opened, plan, history.name_run(started), Work(), started)
    with removing(opened):
        settle_interrupted(opened, history)
        if (answer := spent_answer(opened, history, guards.approved, as_of_ns)) is not None:
            return answer
        if opened.is_listed:
            check_update(opened, history)
        _check_first(opened, as_of_ns, engines, guards)
        keep_settings(opened.root, opened.config)
        edit_declared(opened)
        expired = delete_expired(opened, as_of_ns)
        seal_aged(opened, as_of_ns)
        decide = partial(_plan_guarded, expired, opened, as_of_ns, engines, guards)
        return _until_committed(opened, decide, ExecutionTerms(engines, guards), history, started)


def _check_first(opened: OpenedStream, as_of_ns: int, engines: Engines, guards: Guards) -> None:
    """Refuse a pass that removes too much before its first steps edit consumers or seal segments.

    A stream that needs neither is planned once.
    """
    config = opened.config
    edits = config.policy().asks_consumers or config.consumers or config.topic
    if not edits or (config.guards.rule() == NO_GUARDS and config.approve is None):
        return
    decide = partial(plan_pass, opened, as_of_ns, engines)
    plan = resolving_vectors(opened, decide, engines).plan
    check_approval(config, planned_loss(guarded(opened, plan, guards)), guards.approved)


def _plan_guarded(
    expired: tuple[Pin, ...],
    opened: OpenedStream,
    as_of_ns: int,
    engines: Engines,
    guards: Guards,
) -> Planned:
    """Plan a pass after it has deleted expired consumers; refuse it where guards or a missing approval do."""
    planned = plan_pass(opened, as_of_ns, engines)
    check_approval(opened.config, planned_loss(planned.plan), guards.approved)
    if planned.plan.pins.expired:
        raise BusyError(
            f"{opened.name}: consumers were created meanwhile that are inactive already; nothing was removed; run again"
        )
    plan = guarded(opened, planned.plan, guards)
    return replace(planned, plan=replace(plan, pins=replace(plan.pins, expired=expired)))


@on_stream
def remove_now(opened: OpenedStream, request: Request, engines: Engines) -> RunReport:
    """Plan and carry out a requested removal, under the stream's maintenance lease.

    Raises:
        UsageError: a message to be deleted is not in the stream.
        RefusedError: the stream's configuration denies it, or a guard of the table.
        BusyError, VerificationError: as `apply_now`.
    """
    started = opened.clock()
    history = history_of(opened.warehouse, opened.name)
    check_allowed(opened, request)
    with removing(opened):
        settle_interrupted(opened, history)
        check_update(opened, history)
        decide = partial(plan_removal, opened, request, engines)
        return _until_committed(opened, decide, ExecutionTerms(engines), history, started)


def _until_committed(
    opened: OpenedStream,
    decide: Callable[[], Planned],
    terms: ExecutionTerms,
    history: History,
    started: int,
) -> RunReport:
    """Plan and carry out; if appends commit between a plan that uses sequences and its commit, block appends.

    If a legal hold is placed or released between a plan and its commit, plan again.
    """
    with ExitStack() as held:
        for _ in range(ATTEMPTS):
            run = history.name_run(started)
            with labelled(run=run):
                planned = resolving_vectors(opened, decide, terms.engines)
                try:
                    return carry_out(opened, planned, terms, history, run, started)
                except (ConflictError, StalePlanError):
                    if _holds_moved(opened, planned):
                        continue
                    if not planned.plan.sets_sequences:
                        raise
            held.close()
            held.enter_context(lease(opened.root, "append", opened.clock, wait_s=APPENDS_WAIT_S))
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times messages were appended between a plan that sets the next sequence and its "
        "commit; nothing was changed; try again later"
    )


def _holds_moved(opened: OpenedStream, planned: Planned) -> bool:
    """Whether a legal hold was placed or released since a plan was made, so that it is made again.

    Raises:
        DamagedError: records of legal holds are missing or cannot be read.
    """
    counters = opened.store.snapshot().counters
    return holds_in_effect(opened, counters).edits != planned.plan.pins.holds


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
    if plan.is_empty and not opened.store.exists():
        _check(opened, history, plan, guards)
        return report_of(opened, plan, history.name_run(started), Work(), started)
    with removing(opened):
        settle_interrupted(opened, history)
        check_update(opened, history)
        existed = opened.store.exists()
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
