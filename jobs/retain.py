"""Apply the retention rules to streams: `python -m jobs.retain`, or `spark-submit jobs/retain.py`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from jobs.arguments import add_wait, job_parser
from jobs.running import JobResult, note_if_empty, run_job, seconds_since
from retention import Guards, open_warehouse
from retention.core.outcomes import Outcome
from retention.errors.printable import visible_lines
from retention.history.report import RunReport, document
from retention.views.json_entries import entry, report_entry
from retention.views.text_guards import passed_guards

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse
    from retention.history.compaction_report import CompactionReport


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("retain", "Apply the retention rules to streams.")
    add_wait(parser)
    parser.add_argument(
        "--compact",
        action="store_true",
        help="then compact those with `compact` in the configuration",
    )
    parser.add_argument(
        "--allow-large",
        action="store_true",
        help="let it take more than `guards` let go, this once",
    )
    arguments = parser.parse_args()

    def work(started: int) -> JobResult:
        place = arguments.warehouse or arguments.config
        warehouse = open_warehouse(
            place, engine=arguments.engine, clock=time.time_ns, wait_s=arguments.wait
        )
        note_if_empty("retain", warehouse)
        instant = started if arguments.as_of is None else warehouse.instant(arguments.as_of)
        outcomes = warehouse.apply(
            arguments.stream, instant, Guards(allow_large=arguments.allow_large)
        )
        for text in passed_guards(outcomes):
            print(f"retain: {visible_lines(text)}", file=sys.stderr)
        report = document(instant, [report_entry(outcome) for outcome in outcomes])
        compactions = compact(warehouse, arguments.stream) if arguments.compact else []
        if arguments.compact:
            report["compactions"] = [entry(outcome) for outcome in compactions]
        text = summary(outcomes, seconds_since(started))
        return JobResult(report, text, [*outcomes, *compactions])

    return run_job("retain", arguments, work)


def compact(warehouse: Warehouse, named: list[str]) -> list[Outcome[CompactionReport]]:
    """Compact the streams that the configuration says, of those that are named, or of all if none is."""
    names = [name for name in warehouse.compacted() if name in named or not named]
    return warehouse.compact(names) if names else []


def summary(outcomes: list[Outcome[RunReport]], seconds: float) -> str:
    """The outcomes of a run in one line."""
    reports = [outcome.value for outcome in outcomes if outcome.value is not None]
    messages = sum(report.removed_messages for report in reports)
    size = sum(report.removed_bytes for report in reports)
    failed = len(outcomes) - len(reports)
    done = f"retain: {len(reports)} streams done, {failed} failed"
    overdue = sum((report.overdue or {}).get("messages_at_least", 0) for report in reports)
    stay = f"; at least {overdue:,} older than max_age stay (expiry: head)" if overdue else ""
    return f"{done}; {messages:,} messages ({size:,} bytes) went{stay}; {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
