"""Carry new messages over to mirrors and streams with sources: `python -m jobs.mirror`, or under `spark-submit`."""

from __future__ import annotations

import sys
import time

from jobs.arguments import job_parser, write_report
from retention import open_warehouse
from retention.core.outcomes import Outcome, exit_code, exit_code_of, sentence_of
from retention.engines.spark.driver import end_with_spark_submit
from retention.history.report import document
from retention.ingest.mirror.run import Mirrored
from retention.startup import spare_pandas
from retention.views.mirror import mirror_entry


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    arguments = job_parser("mirror", "Carry new messages over from origins.").parse_args()
    end_with_spark_submit()
    spare_pandas()
    started = time.time_ns()
    try:
        warehouse = open_warehouse(arguments.warehouse or arguments.config, clock=time.time_ns)
        instant = started if arguments.as_of is None else warehouse.instant(arguments.as_of)
        outcomes = warehouse.mirror(arguments.stream, instant)
        entries = [mirror_entry(outcome) for outcome in outcomes]
        write_report(arguments.report_file, document(instant, entries))
    except Exception as error:  # every error is one sentence and an exit code
        print(f"mirror: {sentence_of(error)}", file=sys.stderr)
        return exit_code_of(error)
    for outcome in outcomes:
        if outcome.error is not None:
            print(f"mirror: {outcome.sentence}", file=sys.stderr)
    print(summary(outcomes, (time.time_ns() - started) / 1e9))
    return exit_code(outcomes)


def summary(outcomes: list[Outcome[Mirrored]], seconds: float) -> str:
    """The outcomes of a run in one line."""
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    failed = len(outcomes) - len(done)
    messages = sum(mirrored.messages for mirrored in done)
    size = sum(mirrored.bytes for mirrored in done)
    streams = f"mirror: {len(done)} streams done, {failed} failed"
    return f"{streams}; {messages:,} messages ({size:,} bytes) came; {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
