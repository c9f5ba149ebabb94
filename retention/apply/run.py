"""A pass planned and carried out in one step; all decisions are made in lower layers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from retention.apply.approval import check_approval, planned_loss, spent_answer
from retention.apply.carry_out import carry_out
from retention.apply.deletion_vectors import resolving_vectors
from retention.apply.execution import ExecutionTerms, Work, report_of
from retention.apply.guards import (
    Guards,
    check_instant,
    check_update,
    guarded,
    superseded_answer,
)
from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream
from retention.context.maintenance import removing
from retention.context.ownership import refuse_other_owner
from retention.core.labels import labelled, on_stream
from retention.core.removal_guards import NO_GUARDS
from retention.engines.select import Engines
from retention.errors import BusyError, ConflictError, StalePlanError
from retention.history.report import RunReport
from retention.history.runs import History, history_of
from retention.planners.cached import Planned, plan_pass
from retention.stores.lease import lease
from retention.stores.topic_settings import keep_settings

if TYPE_CHECKING:
    from retention.plan.consumer_snapshot import Pin

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
    if not opened.table.exists():
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
        expired = _edit_first(opened, as_of_ns)
        decide = partial(_plan_guarded, expired, opened, as_of_ns, engines, guards)
        return until_committed(opened, decide, ExecutionTerms(engines, guards), history, started)


def _edit_first(opened: OpenedStream, as_of_ns: int) -> tuple[Pin, ...]:
    """Edit listed consumers, delete expired ones, seal aged segments of a topic; the pins of the deleted consumers."""
    expired: tuple[Pin, ...] = ()
    if opened.config.consumers or opened.config.retention != "limits":
        from retention.interest.edit import delete_expired, edit_declared

        edit_declared(opened)
        expired = delete_expired(opened, as_of_ns)
    if opened.config.topic is not None:
        from retention.apply.seal import seal_aged

        seal_aged(opened, as_of_ns)
    return expired


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


def until_committed(
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
    from retention.context.holds import holds_in_effect

    counters = opened.store.snapshot().counters
    return holds_in_effect(opened, counters).edits != planned.plan.pins.holds
