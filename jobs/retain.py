"""Apply the retention rules to streams, as a scheduled job: `python -m jobs.retain` or `spark-submit jobs/retain.py`."""

from __future__ import annotations

import argparse
import json
import sys
import time

from retention import files, open_warehouse
from retention.engines.driver import end_with_spark_submit
from retention.entries import report_entry
from retention.outcomes import Outcome, code_of, exit_code, sentence_of
from retention.report import Report, document


def arguments() -> argparse.Namespace:
    """What the job is asked to do."""
    parser = argparse.ArgumentParser(prog="retain", description=__doc__)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--config", metavar="FILE", help="the configuration; ./retention.yaml if nothing is given"
    )
    place.add_argument(
        "--warehouse", metavar="DIR", help="a warehouse: a directory or s3://bucket/prefix"
    )
    parser.add_argument(
        "--stream",
        action="append",
        default=[],
        metavar="NAME",
        help="repeatable; all, if not given",
    )
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        help="RFC 3339, or nanoseconds since the epoch; now, if not given",
    )
    parser.add_argument("--report-file", metavar="PATH", help="where the report goes, as JSON")
    parser.add_argument("--engine", choices=("auto", "spark", "local"), default="spark")
    return parser.parse_args()


def main() -> int:
    """Run the job; its exit code."""
    asked = arguments()
    end_with_spark_submit()
    started = time.time_ns()
    try:
        place = asked.config or asked.warehouse or "retention.yaml"
        warehouse = open_warehouse(place, engine=asked.engine, clock=time.time_ns)
        instant = started if asked.as_of is None else warehouse.instant(asked.as_of)
        outcomes = warehouse.apply(asked.stream, instant)
        if asked.report_file:
            report = document(instant, [report_entry(outcome) for outcome in outcomes])
            files.replace(asked.report_file, (json.dumps(report, indent=2) + "\n").encode())
    except Exception as error:  # every error is one sentence and an exit code
        print(f"retain: {sentence_of(error)}", file=sys.stderr)
        return code_of(error)
    for outcome in outcomes:
        if outcome.error is not None:
            print(f"retain: {outcome.stream}: {outcome.sentence}", file=sys.stderr)
    print(summary(outcomes, (time.time_ns() - started) / 1e9))
    return exit_code(outcomes)


def summary(outcomes: list[Outcome[Report]], seconds: float) -> str:
    """The run in one line."""
    reports = [outcome.value for outcome in outcomes if outcome.value is not None]
    gone, size = (
        sum(getattr(one, f"removed_{what}") for one in reports) for what in ("messages", "bytes")
    )
    failed = len(outcomes) - len(reports)
    return f"retain: {len(reports)} streams done, {failed} failed; {gone:,} messages ({size:,} bytes) went; {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
