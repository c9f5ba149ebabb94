"""The terms, the work and the report of a plan carried out, and the record of a plan that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from retention.apply.guards import Guards
from retention.apply.plan_record import intent_of, kept_after, outcome_of
from retention.context.context import OpenedStream
from retention.context.hold_listing import may_have_holds
from retention.core.read_count import ReadCount
from retention.core.units import SECOND
from retention.engines.select import Engines
from retention.history.report import RunReport
from retention.history.runs import History
from retention.plan.plan import Plan
from retention.planners.cached import Planned

if TYPE_CHECKING:
    from retention.apply.archive import Archived


@dataclass(frozen=True)
class Work:
    """The work done to carry out a plan."""

    read: ReadCount = field(default_factory=ReadCount)
    bytes_written: int = 0
    version_before: int = -1
    version_after: int = -1
    archived: Archived | None = None


@dataclass(frozen=True)
class ExecutionTerms:
    """The terms on which a plan is carried out."""

    engines: Engines
    """The engines that copy rows."""
    guards: Guards | None = None
    """Guards checked at the commit as well; None: a person requested the removal, and no guard applies."""


def recorded_alone(
    opened: OpenedStream, planned: Planned, run: str, history: History, started: int
) -> RunReport:
    """Record a run with nothing to commit, but no pass without a policy: it would count as the last pass."""
    plan = planned.plan
    work = Work(version_before=plan.header.version, version_after=plan.header.version)
    report = report_of(opened, plan, run, work, started)
    if opened.is_listed or plan.header.request is not None:
        intent = intent_of(planned, run, (plan.header.epoch, plan.header.epoch))
        outcome = outcome_of(history, intent, report).updated(**kept_after(plan, None))
        history.finish(outcome)
    if planned.snapshot is not None:
        # Finish what a killed run left undone after its commit.
        opened.store.finish()
    return report


def report_of(opened: OpenedStream, plan: Plan, run: str, work: Work, started: int) -> RunReport:
    """The report of a run, or of the run that an empty stream would have had."""
    read = plan.header.read + work.read
    segments: Mapping[str, int] = asdict(plan.header.segments)
    return RunReport(
        run=run,
        stream=opened.name,
        plan_id=plan.plan_id,
        as_of_ns=plan.header.as_of_ns,
        removed_messages=plan.removed_messages,
        removed_bytes=plan.removed_bytes,
        by_rule=plan.by_rule,
        segments=segments,
        files_read=read.files,
        bytes_read=read.bytes,
        bytes_written=work.bytes_written,
        seconds=round((opened.clock() - started) / SECOND, 6),
        version_before=work.version_before,
        version_after=work.version_after,
        markers=plan.markers,
        deleted_consumers=[pin.consumer for pin in plan.pins.expired],
        held=plan.held_as_json,
        overdue=None if plan.overdue is None else plan.overdue.as_json(),
        archived=work.archived.as_json() if work.archived else None,
        dropped=None if plan.dropped is None else plan.dropped.as_json(),
        guards=[finding.as_json() for finding in plan.guards] or None,
        kept_by_holds=plan.kept_by_holds,
        expired_holds=_expired_holds(opened, started) or None,
    )


def _expired_holds(opened: OpenedStream, since_ns: int) -> list[str]:
    """The ids of the legal holds whose end by time was recorded since an instant."""
    if not may_have_holds(opened):
        return []
    from retention.context.holds import expired_since

    return expired_since(opened, since_ns)
