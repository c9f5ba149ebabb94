"""Job: compact streams."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from retention.apply.compact import CompactionLimits
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.history.compaction_report import CompactionReport
from retention.history.report import document
from retention.jobs.arguments import add_selection, add_wait, without_instant
from retention.jobs.running import JobResult, JobRun, job
from retention.views.json_entries import entry

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="rewrite at most this much in all, the best merges first",
    )
    parser.add_argument("--max-time", metavar="DURATION", help="start no merge after this time")
    add_selection(parser)
    parser.add_argument(
        "--configured",
        action="store_true",
        help="skip named streams without `compact` in the configuration",
    )


@job(
    "compact",
    "Merge small and hollow files into good ones.",
    add_wait,
    _add_arguments,
    refusal=without_instant("a merge changes no message at any instant"),
)
def main(run: JobRun) -> JobResult:
    """Merge the files of streams."""
    arguments = run.arguments
    limits = CompactionLimits.parsed(arguments.max_bytes, arguments.max_time)
    warehouse = run.open_with_streams()
    names = warehouse.chosen(arguments.stream, arguments.tag, warehouse.compacted())
    if arguments.configured:
        names = configured(warehouse, names)
    outcomes = warehouse.compact(names, limits).apply()
    report = document(run.started_ns, [entry(outcome) for outcome in outcomes])
    text = run.summary(outcomes, merged(outcomes))
    return JobResult(report, text, outcomes, warehouse=warehouse)


def configured(warehouse: Warehouse, names: list[str]) -> list[str]:
    """The streams with `compact` in their configuration, and missing ones, which are refused later."""
    compacted = set(warehouse.compacted())
    return [name for name in names if name in compacted or not warehouse.has(name)]


def merged(outcomes: list[Outcome[CompactionReport]]) -> str:
    """The clause for the merges of a compaction, and those left."""
    reports = [outcome.value for outcome in outcomes if outcome.value is not None]
    before, after = (
        sum(getattr(report, name) for report in reports) for name in ("files_before", "files_after")
    )
    pending = sum(report.pending for report in reports)
    rest = f"; {counted(pending, 'merge')} left for the next run" if pending else ""
    return f"merged {counted(before, 'file')} into {after:,}{rest}"


if __name__ == "__main__":
    raise SystemExit(main())
