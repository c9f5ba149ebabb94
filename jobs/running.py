"""Running a job: its report, its errors as sentences, its last line, and its exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retention.core.outcomes import Outcome, exit_code, exit_code_of, sentence_of
from retention.engines.spark.driver import end_with_spark_submit
from retention.startup import spare_pandas
from retention.storage.places import place_of


@dataclass(frozen=True)
class JobResult:
    """The end of a job's work."""

    report: dict[str, Any]
    """JSON values, for `--report-file`."""
    text: str
    """The line that it prints, or several."""
    outcomes: Sequence[Outcome[Any]] = ()
    """Those of single streams, whose errors are printed and make the exit code."""


def run_job(name: str, report_file: str | None, work: Callable[[int], JobResult]) -> int:
    """Run a job's work, which gets the instant at which it began; its exit code."""
    end_with_spark_submit()
    spare_pandas()
    try:
        result = work(time.time_ns())
        _write_report(report_file, result.report)
    except Exception as error:  # every error is one sentence and an exit code
        print(f"{name}: {sentence_of(error)}", file=sys.stderr)
        return exit_code_of(error)
    for outcome in result.outcomes:
        if outcome.error is not None:
            print(f"{name}: {outcome.sentence}", file=sys.stderr)
    print(result.text)
    return exit_code(result.outcomes)


def seconds_since(started: int) -> float:
    """The seconds that have passed since an instant, nanoseconds since the epoch."""
    return round((time.time_ns() - started) / 1e9, 3)


def _write_report(path: str | None, report: dict[str, Any]) -> None:
    """Write the report whole or not at all; do nothing without a path."""
    from retention.storage import files

    if path is not None:
        files.replace(
            place_of(path), (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode()
        )
