"""Take rows without sequences out of another table: `python -m jobs.ingest`, or `spark-submit jobs/ingest.py`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, replace

from jobs.arguments import add_any_time, job_parser
from jobs.running import JobResult, run_job, seconds_since
from retention import open_warehouse
from retention.config.discovery import unlisted_stream
from retention.core.accepted_times import accepted_times
from retention.engines.spark.session import session
from retention.errors import UsageError
from retention.ingest.table_source import COLUMNS_HELP, Ingested, Source, check_names, ingest


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("ingest", "Append the rows of another table that were not taken before.")
    parser.add_argument("--source", required=True, metavar="PATH", help="a table that only grows")
    parser.add_argument("--source-format", default="delta", help="delta, parquet, json, csv or orc")
    parser.add_argument("--column", action="append", default=[], help=f"NAME=SQL: {COLUMNS_HELP}")
    add_any_time(parser)
    arguments = parser.parse_args()

    def work(started: int) -> JobResult:
        done, seconds = run(arguments), seconds_since(started)
        text = f"ingest: {done.messages:,} messages ({done.bytes:,} bytes) came; {seconds:.1f} s"
        return JobResult(asdict(done) | {"seconds": seconds}, text)

    return run_job("ingest", arguments, work)


def run(arguments: argparse.Namespace) -> Ingested:
    """Ingest the source that the arguments name; rows without a time of their own get `--as-of`."""
    if len(arguments.stream) != 1 or arguments.engine == "local":
        raise UsageError(
            "a source goes into one stream, by Spark: give one --stream and no other engine"
        )
    columns = dict(option.partition("=")[::2] for option in arguments.column)
    warehouse = open_warehouse(arguments.warehouse or arguments.config, clock=time.time_ns)
    opened = warehouse.new_stream(arguments.stream[0]).opened
    if arguments.as_of is not None:
        instant = warehouse.instant(arguments.as_of)
        opened = replace(opened, clock=lambda: instant)
    check_names(columns, opened.dialect)
    is_new = not warehouse.has(opened.name)
    with session("ingest") as spark:
        times = accepted_times(any_time=arguments.any_time)
        source = Source(arguments.source, arguments.source_format, columns, times)
        done = ingest(opened, source, spark)
    if is_new and warehouse.has(opened.name):
        print(f"ingest: {unlisted_stream(opened.name, warehouse.streams())}", file=sys.stderr)
    return done


if __name__ == "__main__":
    raise SystemExit(main())
