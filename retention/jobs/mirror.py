"""Job: carry new messages to mirrors and streams with sources."""

from __future__ import annotations

import time

from retention import open_warehouse
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.history.report import document
from retention.ingest.mirror.run import Mirrored
from retention.jobs.arguments import add_selection, job_parser
from retention.jobs.running import JobResult, note_if_empty, run_job, seconds_since
from retention.views.mirror import mirror_entry


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("mirror", "Copy new messages from origins.")
    add_selection(parser)
    arguments = parser.parse_args()

    def work(started: int) -> JobResult:
        warehouse = open_warehouse(arguments.warehouse or arguments.config, clock=time.time_ns)
        note_if_empty("mirror", warehouse)
        instant = started if arguments.as_of is None else warehouse.instant(arguments.as_of)
        names = warehouse.chosen(arguments.stream, arguments.tag, warehouse.mirrored())
        outcomes = warehouse.mirror(names, instant)
        entries = [mirror_entry(outcome) for outcome in outcomes]
        text = summary(outcomes, seconds_since(started))
        return JobResult(document(instant, entries), text, outcomes, warehouse=warehouse)

    return run_job("mirror", arguments, work)


def summary(outcomes: list[Outcome[Mirrored]], seconds: float) -> str:
    """The outcomes of a run in one line."""
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    failed = len(outcomes) - len(done)
    messages = sum(mirrored.messages for mirrored in done)
    size = sum(mirrored.bytes for mirrored in done)
    streams = f"mirror: {counted(len(done), 'stream')} done, {failed} failed"
    return f"{streams}; stored {counted(messages, 'message')} ({counted(size, 'byte')}); {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
