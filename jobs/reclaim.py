"""Delete what is dead for longer than its grace: `python -m jobs.reclaim`, or `spark-submit jobs/reclaim.py`."""

from __future__ import annotations

import sys
import time

from jobs.arguments import job_parser, write_report
from retention import open_warehouse
from retention.apply.reclaim.report import Amount, ReclaimReport
from retention.core.outcomes import Outcome, exit_code, exit_code_of, sentence_of
from retention.engines.spark.driver import end_with_spark_submit
from retention.history.report import document
from retention.startup import spare_pandas
from retention.views.reclaim import reclaim_entry


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("reclaim", "Delete what is dead for longer than its grace.")
    arguments = parser.parse_args()
    if arguments.as_of is not None:
        parser.error("graces end by the storage's clock: leave out --as-of")
    end_with_spark_submit()
    spare_pandas()
    started = time.time_ns()
    try:
        warehouse = open_warehouse(arguments.warehouse or arguments.config, clock=time.time_ns)
        outcomes = warehouse.reclaim(arguments.stream)
        entries = [reclaim_entry(outcome) for outcome in outcomes]
        write_report(arguments.report_file, document(started, entries))
    except Exception as error:  # every error is one sentence and an exit code
        print(f"reclaim: {sentence_of(error)}", file=sys.stderr)
        return exit_code_of(error)
    for outcome in outcomes:
        if outcome.error is not None:
            print(f"reclaim: {outcome.sentence}", file=sys.stderr)
    print(summary(outcomes, (time.time_ns() - started) / 1e9))
    return exit_code(outcomes)


def summary(outcomes: list[Outcome[ReclaimReport]], seconds: float) -> str:
    """The outcomes of a run in one line."""
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    total = sum((report.total for report in done), Amount())
    streams = f"reclaim: {len(done)} streams done, {len(outcomes) - len(done)} failed"
    return f"{streams}; {total.files:,} files ({total.bytes:,} bytes) went; {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
