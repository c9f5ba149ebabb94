"""Delete what is dead for longer than its grace: `python -m jobs.reclaim`, or `spark-submit jobs/reclaim.py`."""

from __future__ import annotations

import time

from jobs.arguments import add_selection, add_wait, job_parser
from jobs.running import JobResult, note_if_empty, run_job, seconds_since
from retention import open_warehouse
from retention.apply.reclaim.report import Amount, ReclaimReport
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.history.report import document
from retention.views.reclaim import reclaim_entry


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("reclaim", "Delete what is dead for longer than its grace.")
    add_wait(parser)
    add_selection(parser)
    arguments = parser.parse_args()
    if arguments.as_of is not None:
        parser.error("graces end by the storage's clock: leave out --as-of")

    def work(started: int) -> JobResult:
        warehouse = open_warehouse(
            arguments.warehouse or arguments.config, clock=time.time_ns, wait_s=arguments.wait
        )
        note_if_empty("reclaim", warehouse)
        outcomes = warehouse.reclaim(warehouse.chosen(arguments.stream, arguments.tag)).apply()
        entries = [reclaim_entry(outcome) for outcome in outcomes]
        text = summary(outcomes, seconds_since(started))
        return JobResult(document(started, entries), text, outcomes, warehouse=warehouse)

    return run_job("reclaim", arguments, work)


def summary(outcomes: list[Outcome[ReclaimReport]], seconds: float) -> str:
    """The outcomes of a run in one line."""
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    total = sum((report.total for report in done), Amount())
    streams = f"reclaim: {counted(len(done), 'stream')} done, {len(outcomes) - len(done)} failed"
    return f"{streams}; {counted(total.files, 'file')} ({counted(total.bytes, 'byte')}) went; {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
