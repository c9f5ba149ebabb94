"""Job: compact streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.apply.compact import CompactionLimits
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.history.compaction_report import CompactionReport
from retention.history.report import document
from retention.jobs.arguments import add_selection, add_wait, job_parser
from retention.jobs.running import JobResult, open_on_engine, run_job, seconds_since
from retention.views.json_entries import entry

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("compact", "Merge small and hollow files.")
    add_wait(parser)
    parser.add_argument("--max-bytes", metavar="SIZE", help="rewrite at most this much")
    parser.add_argument("--max-time", metavar="DURATION", help="start no merge after this time")
    add_selection(parser)
    parser.add_argument(
        "--configured",
        action="store_true",
        help="skip named streams without `compact` in the configuration",
    )
    arguments = parser.parse_args()
    if arguments.as_of is not None:
        parser.error("a merge changes no message at any instant: leave out --as-of")

    def work(started: int) -> JobResult:
        limits = CompactionLimits.parsed(arguments.max_bytes, arguments.max_time)
        warehouse = open_on_engine("compact", arguments)
        names = warehouse.chosen(arguments.stream, arguments.tag, warehouse.compacted())
        if arguments.configured:
            names = configured(warehouse, names)
        outcomes = warehouse.compact(names, limits).apply()
        report = document(started, [entry(outcome) for outcome in outcomes])
        text = summary(outcomes, seconds_since(started))
        return JobResult(report, text, outcomes, warehouse=warehouse)

    return run_job("compact", arguments, work)


def configured(warehouse: Warehouse, names: list[str]) -> list[str]:
    """The streams with `compact` in their configuration, and missing ones, which are refused later."""
    compacted = set(warehouse.compacted())
    return [name for name in names if name in compacted or not warehouse.has(name)]


def summary(outcomes: list[Outcome[CompactionReport]], seconds: float) -> str:
    """The outcomes of a compaction in one line."""
    reports = [outcome.value for outcome in outcomes if outcome.value is not None]
    before, after = (
        sum(getattr(report, name) for report in reports) for name in ("files_before", "files_after")
    )
    pending = sum(report.pending for report in reports)
    rest = f"; {counted(pending, 'merge')} left for the next run" if pending else ""
    failed = len(outcomes) - len(reports)
    return (
        f"compact: {counted(len(reports), 'stream')} done, {failed} failed; "
        f"merged {counted(before, 'file')} into {after:,}{rest}; {seconds:.1f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())
