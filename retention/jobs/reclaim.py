"""Job: delete files dead for longer than their grace."""

from __future__ import annotations

import argparse

from retention.api.unlisted import unlisted_finding
from retention.apply.reclaim.report import Amount
from retention.core.wording import counted
from retention.history.report import document
from retention.jobs.arguments import add_selection, add_wait, without_instant
from retention.jobs.running import JobResult, JobRun, job
from retention.views.reclaim import reclaim_entry, table_reclaim_entry


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
    """Delete the dead files of streams, and those that passes over tables removed."""
    arguments, unlisted = run.arguments, None
    warehouse = run.open_with_streams(tables=True)
    tables: list[str] = []
    if arguments.unlisted:
        names = warehouse.chosen_unlisted(arguments.stream)
    else:
        names, tables = warehouse.chosen_with_tables(
            arguments.stream, arguments.tag, warehouse.reclaimable()
        )
    outcomes = warehouse.reclaim(names).apply()
    of_tables = warehouse.reclaim_tables(tables).apply()
    total = sum((each.value.total for each in outcomes if each.value), Amount())
    total = sum((each.value.going for each in of_tables if each.value), total)
    deleted = f"deleted {counted(total.files, 'file')} ({counted(total.bytes, 'byte')})"
    text = run.summary(outcomes, deleted, of_tables)
    table_entries = list(map(table_reclaim_entry, of_tables)) if warehouse.tables() else None
    report = document(
        run.started_ns, [reclaim_entry(outcome) for outcome in outcomes], table_entries
    )
    if not arguments.unlisted:
        unlisted = unlisted_finding(warehouse, arguments.stream, arguments.tag)
    return JobResult(
        report, text, outcomes, warehouse=warehouse, unlisted=unlisted, tables=of_tables
    )


if __name__ == "__main__":
    raise SystemExit(main())
