"""Job: check Spark, the warehouse, its streams and tables."""

from __future__ import annotations

from retention.doctor.examine import examine
from retention.doctor.finding import exit_code, finding_lines
from retention.doctor.spark import check_spark
from retention.errors.printable import visible_lines
from retention.jobs.arguments import add_selection, without_instant
from retention.jobs.running import JobResult, JobRun, job


@job(
    "doctor",
    "Check Spark, a warehouse, its streams and tables.",
    add_selection,
    refusal=without_instant("a check has no instant"),
)
def main(run: JobRun) -> JobResult:
    """Check Spark, the warehouse, its streams and tables."""
    # An invalid warehouse, or a missing stream, is reported before Spark starts.
    of_warehouse = list(examine(run.open, run.arguments.stream, run.arguments.tag))
    checks = [*check_spark(lambda: run.open().location), *of_warehouse]
    report = {"findings": [finding.as_json() for finding in checks]}
    text = visible_lines("\n".join(finding_lines(checks)))
    return JobResult(report, text, exit_code=exit_code(checks))


if __name__ == "__main__":
    raise SystemExit(main())
