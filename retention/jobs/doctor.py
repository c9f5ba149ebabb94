"""Job: check Spark, the warehouse and its streams."""

from __future__ import annotations

import time

from retention import open_warehouse
from retention.api.warehouse import Warehouse
from retention.doctor.examine import examine
from retention.doctor.finding import exit_code, finding_lines
from retention.doctor.spark import check_spark
from retention.errors.printable import visible_lines
from retention.jobs.arguments import add_selection, job_parser
from retention.jobs.running import JobResult, run_job


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("doctor", "Check Spark, a warehouse and its streams.")
    add_selection(parser)
    arguments = parser.parse_args()
    if arguments.as_of is not None:
        parser.error("a check has no instant: leave out --as-of")

    def opened() -> Warehouse:
        place = arguments.warehouse or arguments.config
        return open_warehouse(place, engine=arguments.engine, clock=time.time_ns)

    def work(_: int) -> JobResult:
        # An invalid warehouse, or a missing stream, is reported before Spark starts.
        of_warehouse = list(examine(opened, arguments.stream, arguments.tag))
        checks = [*check_spark(lambda: opened().location), *of_warehouse]
        report = {"findings": [finding.as_json() for finding in checks]}
        text = visible_lines("\n".join(finding_lines(checks)))
        return JobResult(report, text, exit_code=exit_code(checks))

    return run_job("doctor", arguments, work)


if __name__ == "__main__":
    raise SystemExit(main())
