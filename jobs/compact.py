"""Compact streams: `python -m jobs.compact`, or `spark-submit jobs/compact.py`."""

from __future__ import annotations

import sys
import time

from jobs.arguments import job_parser, write_report
from retention import open_warehouse
from retention.apply.compact import CompactionLimits
from retention.core.outcomes import Outcome, exit_code, exit_code_of, sentence_of
from retention.core.units import parse_duration, parse_size
from retention.engines.spark.driver import end_with_spark_submit
from retention.history.compaction_report import CompactionReport
from retention.history.report import document
from retention.startup import spare_pandas
from retention.views.json_entries import compaction_entry


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("compact", "Merge small and hollow files of streams into good ones.")
    parser.add_argument("--max-bytes", metavar="SIZE", help="rewrite no more than this")
    parser.add_argument("--max-time", metavar="DURATION", help="begin nothing more after this")
    arguments = parser.parse_args()
    end_with_spark_submit()
    spare_pandas()
    started = time.time_ns()
    try:
        limits = CompactionLimits(
            None if arguments.max_bytes is None else parse_size(arguments.max_bytes),
            None if arguments.max_time is None else parse_duration(arguments.max_time),
        )
        place = arguments.warehouse or arguments.config
        warehouse = open_warehouse(place, engine=arguments.engine, clock=time.time_ns)
        outcomes = warehouse.compact(arguments.stream, limits)
        write_report(
            arguments.report_file, document(started, list(map(compaction_entry, outcomes)))
        )
    except Exception as error:  # every error is one sentence and an exit code
        print(f"compact: {sentence_of(error)}", file=sys.stderr)
        return exit_code_of(error)
    for outcome in outcomes:
        if outcome.error is not None:
            print(f"compact: {outcome.sentence}", file=sys.stderr)
    print(summary(outcomes, (time.time_ns() - started) / 1e9))
    return exit_code(outcomes)


def summary(outcomes: list[Outcome[CompactionReport]], seconds: float) -> str:
    """The outcomes of a compaction in one line."""
    reports = [outcome.value for outcome in outcomes if outcome.value is not None]
    before, after = (
        sum(getattr(report, name) for report in reports) for name in ("files_before", "files_after")
    )
    pending = sum(report.pending for report in reports)
    rest = f"; {pending:,} merges left for the next time" if pending else ""
    failed = len(outcomes) - len(reports)
    return (
        f"compact: {len(reports)} streams done, {failed} failed; {before:,} files became {after:,}{rest}; "
        f"{seconds:.1f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())
