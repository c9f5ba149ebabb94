"""Plan a pass over streams and change nothing: `python -m jobs.plan`, or `spark-submit jobs/plan.py`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from jobs.arguments import add_selection, job_parser
from jobs.running import JobResult, note_if_empty, run_job, seconds_since
from retention import open_warehouse
from retention.apply.approval import approval_need
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.history.report import document
from retention.plan.plan import Plan
from retention.views.json_entries import plan_entry

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("plan", "Plan a pass over streams; the report can be approved for retain.")
    add_selection(parser)
    arguments = parser.parse_args()

    def work(started: int) -> JobResult:
        place = arguments.warehouse or arguments.config
        warehouse = open_warehouse(place, engine=arguments.engine, clock=time.time_ns)
        note_if_empty("plan", warehouse)
        instant = started if arguments.as_of is None else warehouse.instant(arguments.as_of)
        names = warehouse.chosen(arguments.stream, arguments.tag)
        outcomes = warehouse.plan(names, instant)
        report = document(instant, [entry(warehouse, outcome) for outcome in outcomes])
        return JobResult(report, summary(outcomes, seconds_since(started)), outcomes)

    return run_job("plan", arguments, work)


def entry(warehouse: Warehouse, outcome: Outcome[Plan]) -> dict[str, Any]:
    """The JSON entry of a planned stream, with whether a pass would change it, and why a person has to approve that."""
    plan = outcome.value
    if plan is None:
        return plan_entry(outcome)
    config = warehouse.config
    settings = config.stream(plan.stream) or config.default_stream(plan.stream)
    need = approval_need(settings, plan)
    return plan_entry(outcome) | {"would_change": not plan.is_empty, "needs_approval": need}


def summary(outcomes: list[Outcome[Plan]], seconds: float) -> str:
    """The outcomes of planning in one line."""
    plans = [outcome.value for outcome in outcomes if outcome.value is not None]
    messages = sum(plan.removed_messages for plan in plans)
    size = sum(plan.removed_bytes for plan in plans)
    done = f"plan: {counted(len(plans), 'stream')} done, {len(outcomes) - len(plans)} failed"
    return f"{done}; {counted(messages, 'message')} ({counted(size, 'byte')}) would go; {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
