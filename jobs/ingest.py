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
from retention.core.wording import counted
from retention.errors import UsageError
from retention.ingest.table_source import COLUMNS_HELP, Ingested, Source, check_names, ingest


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("ingest", "Append the rows of another table that were not taken before.")
    parser.add_argument(
        "--source", required=True, metavar="PATH", help="a Delta table, or a directory of files"
    )
    parser.add_argument("--source-format", default="delta", help="delta, parquet, json, csv or orc")
    parser.add_argument("--column", action="append", default=[], help=f"NAME=SQL: {COLUMNS_HELP}")
    add_any_time(parser)
    for name, what in (("take", "all of its rows are new"), ("skip", "its rows were taken")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="WHAT",
            help=f"a file, or a version of a Delta table, that a run refused: {what}; may be repeated",
        )
    arguments = parser.parse_args()

    def work(started: int) -> JobResult:
        done, seconds = run(arguments), seconds_since(started)
        text = f"ingest: {counted(done.messages, 'message')} ({counted(done.bytes, 'byte')}) came; {seconds:.1f} s"
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
    source = Source(
        arguments.source,
        arguments.source_format,
        columns,
        accepted_times(any_time=arguments.any_time),
        frozenset(arguments.take),
        frozenset(arguments.skip),
    )
    done = ingest(opened, source)
    for note in done.notes:
        print(f"ingest: {note}", file=sys.stderr)
    if is_new and warehouse.has(opened.name):
        print(f"ingest: {unlisted_stream(opened.name, warehouse.streams())}", file=sys.stderr)
    return done


if __name__ == "__main__":
    raise SystemExit(main())
