"""Job: delete files dead for longer than their grace."""

from __future__ import annotations

import argparse

from retention.api.unlisted import unlisted_finding
from retention.apply.reclaim.report import Amount
from retention.core.wording import counted
from retention.history.report import document
from retention.jobs.arguments import add_selection, add_wait, without_instant
from retention.jobs.running import JobResult, JobRun, job
from retention.views.reclaim import reclaim_entry


def _add_unlisted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unlisted",
        action="store_true",
        help="only streams that no configuration lists",
    )


def _refusal(arguments: argparse.Namespace) -> str | None:
    if arguments.unlisted and arguments.tag:
        return "unlisted streams have no tags: leave out --tag or --unlisted"
    return without_instant("grace periods end by the storage's clock")(arguments)


@job(
    "reclaim",
    "Delete files whose grace period is over.",
    add_wait,
    add_selection,
    _add_unlisted,
    engine=None,
    refusal=_refusal,
)
def main(run: JobRun) -> JobResult:
    """Delete the dead files of streams."""
    arguments, unlisted = run.arguments, None
    warehouse = run.open_with_streams()
    if arguments.unlisted:
        names = warehouse.chosen_unlisted(arguments.stream)
    else:
        names = warehouse.chosen(arguments.stream, arguments.tag, warehouse.reclaimable())
    outcomes = warehouse.reclaim(names).apply()
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    total = sum((report.total for report in done), Amount())
    deleted = f"deleted {counted(total.files, 'file')} ({counted(total.bytes, 'byte')})"
    text = run.summary(outcomes, deleted)
    report = document(run.started_ns, [reclaim_entry(outcome) for outcome in outcomes])
    if not arguments.unlisted:
        unlisted = unlisted_finding(warehouse, arguments.stream, arguments.tag)
    return JobResult(report, text, outcomes, warehouse=warehouse, unlisted=unlisted)


if __name__ == "__main__":
    raise SystemExit(main())
