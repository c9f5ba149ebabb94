"""The record of a run that carries a plan out: its intent, and its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.history.kinds import Applied, Dropped, Erased, PlannedRun, Requested
from retention.history.record import ArchivedCopies, RecordedRequest, Segments
from retention.history.report import RunReport
from retention.history.runs import History
from retention.plan.plan import Plan
from retention.planners.cached import Planned

if TYPE_CHECKING:
    from retention.apply.change import Change


def intent_of(planned: Planned, run: str, epochs: tuple[int, int]) -> PlannedRun:
    """The record of a run that is about to carry out a plan."""
    plan, (before, after) = planned.plan, epochs
    known, sequences = dict(planned.next_seq), sequences_after(plan)
    return _typed(plan, run).updated(
        stream=plan.header.stream,
        plan_id=plan.plan_id,
        policy=plan.header.policy.as_json(),
        removed_messages=plan.removed_messages,
        removed_bytes=plan.removed_bytes,
        by_rule=plan.by_rule,
        segments=Segments(**vars(plan.header.segments)),
        markers=plan.markers,
        deleted_consumers=[pin.consumer for pin in plan.pins.expired],
        held=plan.held_as_json,
        dropped=None if plan.dropped is None else plan.dropped.as_json(),
        next_seq=sequences if plan.header.begins_epoch else known | sequences,
        ended_next_seq=known if plan.header.begins_epoch else None,
        epoch=after,
        ends_epoch=None if before == after else before,
    )


def _typed(plan: Plan, run: str) -> PlannedRun:
    """The record type for a run of a plan's kind, with no other fields set."""
    if plan.header.request is None:
        return Applied(run=run, as_of_ns=plan.header.as_of_ns)
    from retention.rules.erase import Erase
    from retention.rules.requests import Drop

    if isinstance(plan.header.request, Erase):
        erasure = plan.header.request.erasure
        return Erased(run=run, as_of_ns=plan.header.as_of_ns, erasure=erasure)
    request = RecordedRequest.of(plan.header.request)
    if isinstance(plan.header.request, Drop):
        return Dropped(run=run, as_of_ns=plan.header.as_of_ns, request=request)
    return Requested.model_validate(
        {"run": run, "as_of_ns": plan.header.as_of_ns, "kind": plan.header.kind, "request": request}
    )


def outcome_of(history: History, intent: PlannedRun, report: RunReport) -> PlannedRun:
    """The record of a run that has carried out its plan."""
    archived = report.archived
    outcome = intent.ended(
        report.version_after,
        version_before=report.version_before,
        files_read=report.files_read,
        bytes_read=report.bytes_read,
        bytes_written=report.bytes_written,
        seconds=report.seconds,
        overdue=report.overdue,
        archived=None if archived is None else ArchivedCopies(**archived),
        guards=report.guards,
    )
    if not isinstance(intent, Applied):
        return outcome
    latest = history.last_as_of_ns() or report.as_of_ns
    return outcome.updated(latest_as_of_ns=max(report.as_of_ns, latest))


def kept_after(plan: Plan, change: Change | None) -> dict[str, int]:
    """The messages and bytes that a plan keeps, as fields of the record; empty if it was made without reading files.

    Args:
        plan: the plan.
        change: what it changed; None: nothing.
    """
    cause = plan.cause
    keeps_others = plan.header.segments.kept > cause.tail.segments
    if keeps_others and (cause.next_due_ns is not None or not cause.files.num_rows):
        return {}
    from retention.apply.change import Change
    from retention.apply.kept_counts import kept_counts

    return kept_counts(cause.files, change or Change(), cause.tail)


def sequences_after(plan: Plan) -> dict[int, int]:
    """Partition → the next sequence to assign, where the plan uses or skips some."""
    if plan.sequences is None:
        return {}
    from retention.datafile.segment_writer import PARTITION

    return {PARTITION: plan.sequences[1]}
