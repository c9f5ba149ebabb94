"""Job: verify streams and tables."""

from __future__ import annotations

import argparse

from retention.core.wording import counted
from retention.errors.printable import visible_lines
from retention.history.report import document
from retention.jobs.arguments import add_selection, without_instant
from retention.jobs.running import JobResult, JobRun, job
from retention.verify.finding import exit_code_of_findings
from retention.views.text_verify import (
    table_verification_entry,
    verification_entry,
    verification_text,
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sample", metavar="SHARE", help="read only this share of each stream's files, such as 1%%"
    )
    parser.add_argument(
        "--record", action="store_true", help="record the digests of intact files without one"
    )
    parser.add_argument(
        "--archive", action="store_true", help="read the copies in the streams' archives, too"
    )


@job(
    "verify",
    "Verify files, logs and records against each other.",
    add_selection,
    _add_arguments,
    refusal=without_instant("a verification has no instant"),
)
def main(run: JobRun) -> JobResult:
    """Verify streams and tables, and print each finding with its remedy."""
    arguments = run.arguments
    warehouse = run.open_with_streams(tables=True)
    streams, tables = warehouse.chosen_with_tables(arguments.stream, arguments.tag)
    chosen = [*streams, *tables]
    scope = {
        "sample": arguments.sample,
        "record": arguments.record,
        "archive": arguments.archive,
    }
    every = warehouse.verify(chosen, **scope) if chosen else []
    outcomes = [outcome for outcome in every if outcome.stream not in tables]
    of_tables = [outcome for outcome in every if outcome.stream in tables]
    results = [outcome.value for outcome in every if outcome.value is not None]
    damages = sum(len(result.damages) for result in results)
    lines = [line for result in results if result.damages for line in verification_text(result)]
    lines.append(run.summary(outcomes, counted(damages, "finding"), of_tables))
    entries = list(map(table_verification_entry, of_tables)) if warehouse.tables() else None
    report = document(run.started_ns, list(map(verification_entry, outcomes)), entries)
    return JobResult(
        report,
        visible_lines("\n".join(lines)),
        outcomes,
        exit_code_of_findings(results),
        warehouse,
        of_tables,
    )


if __name__ == "__main__":
    raise SystemExit(main())
