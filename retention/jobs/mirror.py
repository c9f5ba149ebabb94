"""Job: carry new messages to mirrors and streams with sources."""

from __future__ import annotations

from retention.core.wording import counted
from retention.history.report import document
from retention.jobs.arguments import add_selection
from retention.jobs.running import JobResult, JobRun, job
from retention.views.mirror import mirror_entry


@job("mirror", "Copy new messages from origins.", add_selection, engine=None)
def main(run: JobRun) -> JobResult:
    """Copy new messages to mirrors and streams with sources."""
    warehouse = run.open_with_streams()
    instant = run.instant(warehouse)
    names = warehouse.chosen(run.arguments.stream, run.arguments.tag, warehouse.mirrored())
    outcomes = warehouse.mirror(names, instant)
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    messages = counted(sum(mirrored.messages for mirrored in done), "message")
    size = counted(sum(mirrored.bytes for mirrored in done), "byte")
    report = document(instant, [mirror_entry(outcome) for outcome in outcomes])
    text = run.summary(outcomes, f"stored {messages} ({size})")
    return JobResult(report, text, outcomes, warehouse=warehouse)


if __name__ == "__main__":
    raise SystemExit(main())
