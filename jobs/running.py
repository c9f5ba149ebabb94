"""Running a job: its report, its errors as sentences, its last line, and its exit code."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from retention.config.discovery import no_streams
from retention.core.outcomes import ENDINGS, Outcome, exit_code, exit_code_of, sentence_of
from retention.engines.spark.driver import end_with_spark_submit
from retention.errors.printable import visible_lines
from retention.startup import spare_pandas
from retention.storage.places import place_of
from retention.storage.signals import end_between_commits

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse


@dataclass(frozen=True)
class JobResult:
    """The end of a job's work."""

    report: dict[str, Any]
    """JSON values, for `--report-file`."""
    text: str
    """The line that it prints, or several."""
    outcomes: Sequence[Outcome[Any]] = ()
    """Those of single streams, whose errors are printed and make the exit code."""
    exit_code: int = 0
    """That of work without outcomes."""


def run_job(name: str, arguments: argparse.Namespace, work: Callable[[int], JobResult]) -> int:
    """Run a job's work, which gets the instant at which it began.

    Args:
        name: the job's.
        arguments: those of `job_parser`.
        work: what the job does.

    Returns:
        Its exit code.
    """
    end_between_commits()
    end_with_spark_submit()
    spare_pandas()
    say = partial(_say, name, debug=arguments.debug)
    try:
        result = work(time.time_ns())
        _write_report(arguments.report_file, result.report)
    except ENDINGS as error:  # every error is one sentence and an exit code
        say(sentence_of(error), error)
        return exit_code_of(error)
    for outcome in result.outcomes:
        if outcome.error is not None:
            say(outcome.sentence, outcome.error)
    if not arguments.quiet:
        print(result.text)
    return exit_code(result.outcomes) or result.exit_code


def note_if_empty(name: str, warehouse: Warehouse) -> None:
    """Print that a warehouse has no streams, so that there is nothing for a job to do.

    Raises:
        UsageError: there is no warehouse.
    """
    if not warehouse.config.streams and not warehouse.chosen():
        print(f"{name}: {no_streams(warehouse.location)}", file=sys.stderr)


def seconds_since(started: int) -> float:
    """The seconds that have passed since an instant, nanoseconds since the epoch."""
    return round((time.time_ns() - started) / 1e9, 3)


def _say(name: str, text: str, error: BaseException, *, debug: bool) -> None:
    if debug:
        print(visible_lines("".join(traceback.format_exception(error)).rstrip()), file=sys.stderr)
    print(f"{name}: {text}", file=sys.stderr)


def _write_report(path: str | None, report: dict[str, Any]) -> None:
    """Write the report whole or not at all; do nothing without a path."""
    from retention.storage import files

    if path is not None:
        files.replace(
            place_of(path), (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode()
        )
