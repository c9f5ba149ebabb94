"""The page about the streams and tables of a job: `--report-html`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retention.jobs.running import JobResult


def add_page(parser: argparse.ArgumentParser) -> None:
    """Add the argument of jobs that can write a page about their streams and tables."""
    parser.add_argument(
        "--report-html", metavar="PATH", help="write a page about its streams and tables there"
    )


def write_page(path: str, result: JobResult) -> None:
    """Write the page about the streams and tables of a job; do nothing for a job that had none.

    Raises:
        RetentionError: it cannot be written.
    """
    outcomes = [*result.outcomes, *result.tables]
    if result.warehouse is None or not outcomes:
        return
    errors = {each.stream: each.sentence for each in outcomes if each.error is not None}
    names = list(dict.fromkeys(each.stream for each in outcomes))
    result.warehouse.report(names).of_job(result.text, errors).save_html(path)
