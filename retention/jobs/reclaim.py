"""Job: delete files dead for longer than their grace."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from retention import open_warehouse
from retention.api.unlisted import unlisted_finding
from retention.apply.reclaim.report import Amount, ReclaimReport
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.history.report import document
from retention.jobs.arguments import add_selection, add_wait, job_parser
from retention.jobs.running import JobResult, note_if_empty, run_job, seconds_since
from retention.views.reclaim import reclaim_entry

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("reclaim", "Delete files whose grace period is over.")
    add_wait(parser)
    add_selection(parser)
    parser.add_argument(
        "--unlisted",
        action="store_true",
        help="only streams that no configuration lists",
    )
    arguments = parser.parse_args()
    if arguments.unlisted and arguments.tag:
        parser.error("unlisted streams have no tags: leave out --tag or --unlisted")
    if arguments.as_of is not None:
        parser.error("grace periods end by the storage's clock: leave out --as-of")

    def work(started: int) -> JobResult:
        warehouse = open_warehouse(
            arguments.warehouse or arguments.config, clock=time.time_ns, wait_s=arguments.wait
        )
        note_if_empty("reclaim", warehouse)
        names = chosen(warehouse, arguments)
        outcomes = warehouse.reclaim(names).apply()
        entries = [reclaim_entry(outcome) for outcome in outcomes]
        text = summary(outcomes, seconds_since(started))
        report = document(started, entries)
        if arguments.unlisted:
            return JobResult(report, text, outcomes, warehouse=warehouse)
        unlisted = unlisted_finding(warehouse, arguments.stream, arguments.tag)
        return JobResult(report, text, outcomes, warehouse=warehouse, unlisted=unlisted)

    return run_job("reclaim", arguments, work)


def chosen(warehouse: Warehouse, arguments: argparse.Namespace) -> list[str]:
    """The streams to act on."""
    if arguments.unlisted:
        return warehouse.chosen_unlisted(arguments.stream)
    return warehouse.chosen(arguments.stream, arguments.tag, warehouse.reclaimable())


def summary(outcomes: list[Outcome[ReclaimReport]], seconds: float) -> str:
    """The outcomes of a run in one line."""
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    total = sum((report.total for report in done), Amount())
    streams = f"reclaim: {counted(len(done), 'stream')} done, {len(outcomes) - len(done)} failed"
    return f"{streams}; deleted {counted(total.files, 'file')} ({counted(total.bytes, 'byte')}); {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
