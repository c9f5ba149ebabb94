"""A plan carried out: recorded alone if it changes nothing, and committed otherwise."""

from __future__ import annotations

from retention.apply.execution import ExecutionTerms, recorded_alone
from retention.context.context import OpenedStream
from retention.history.report import RunReport
from retention.history.runs import History
from retention.planners.cached import Planned


def carry_out(
    opened: OpenedStream,
    planned: Planned,
    terms: ExecutionTerms,
    history: History,
    run: str,
    started: int,
) -> RunReport:
    """Carry a plan out, under the stream's maintenance lease.

    Args:
        opened: the stream.
        planned: the plan, and the snapshot and statistics that it was made from.
        terms: where rows are copied, and which guards the commit must pass.
        history: where the run is recorded.
        run: the name of the run.
        started: when the run began, nanoseconds since the epoch.

    Raises:
        StalePlanError: a pinned file is gone or changed, or another run is spending the same approval.
        RefusedError: at the commit the table has too few messages for a guard to permit the plan.
        ConflictError: an append committed first, and the plan sets the next sequence.
        VerificationError: a staged copy differs from the plan; nothing was committed.
    """
    plan = planned.plan
    if plan.header.request is not None:
        from retention.interest.commit_offsets import raise_watermark

        raise_watermark(opened, plan.header.request, plan.header.epoch)
    if plan.is_empty and planned.goes_on is None:
        return recorded_alone(opened, planned, run, history, started)
    from retention.apply.execute import execute

    return execute(opened, planned, terms, history, run, started)
