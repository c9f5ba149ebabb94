"""Job: append the new rows of another table, without sequences, to a stream."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace

from retention.config.discovery import unlisted_stream
from retention.core.accepted_times import accepted_times
from retention.core.wording import counted
from retention.dialects.column_mapping import ColumnMapping
from retention.errors import UsageError
from retention.ingest.table_source import COLUMNS_HELP, Ingested, TableSource, ingest
from retention.jobs.arguments import add_any_time
from retention.jobs.running import JobResult, JobRun, job


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source", required=True, metavar="PATH", help="a Delta table, or a directory of files"
    )
    parser.add_argument("--source-format", default="delta", help="delta, parquet, json, csv or orc")
    parser.add_argument("--column", action="append", default=[], help=f"NAME=SQL: {COLUMNS_HELP}")
    add_any_time(parser)
    _add_mapping(parser)
    for name, what in (("take", "all of its rows are new"), ("skip", "its rows were taken")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="WHAT",
            help=f"a file, Delta version, `table` or `columns` that a run refused: {what}; may be repeated",
        )


def _add_mapping(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the source's rows beyond the column names."""
    parser.add_argument(
        "--order-by",
        metavar="COL[,COL…]",
        help="columns that order the messages; default: offset and partition, else the time",
    )
    parser.add_argument("--where", metavar="SQL", help="read only rows that satisfy it")
    parser.add_argument(
        "--tombstone",
        metavar="SQL",
        help="turn matching rows into deletions, such as 'value IS NULL'",
    )
    parser.add_argument("--payload", choices=("all",), help="all: store the whole row as JSON")
    parser.add_argument(
        "--time",
        choices=("now",),
        help="now: give rows without a time the time of this run",
    )


def _mapping(arguments: argparse.Namespace) -> ColumnMapping:
    columns = dict(option.partition("=")[::2] for option in arguments.column)
    order_by = None
    if arguments.order_by is not None:
        order_by = tuple(name.strip() for name in arguments.order_by.split(","))
        if not all(order_by):
            raise UsageError(
                f"--order-by {arguments.order_by}: a column has no name; nothing was read; name columns, such as "
                "kafka_offset,kafka_partition"
            )
    whole_row = arguments.payload is not None
    return ColumnMapping(columns, order_by, arguments.where, arguments.tombstone, whole_row)


def _ingest(run: JobRun) -> Ingested:
    """Ingest the source that the arguments name; rows without a time of their own get `--as-of`, or `--time now`."""
    arguments = run.arguments
    if len(arguments.stream) != 1 or arguments.engine == "local":
        raise UsageError(
            "ingestion needs one stream, and Spark: give one --stream and no other engine"
        )
    mapping = _mapping(arguments)
    warehouse = run.open()
    opened = warehouse.new_stream(arguments.stream[0]).opened
    if arguments.as_of is not None:
        instant = warehouse.instant(arguments.as_of)
        opened = replace(opened, clock=lambda: instant)
    mapping.check(opened.dialect)
    is_new = not warehouse.has(opened.name)
    # A topic's server gives each message its time of arrival.
    is_timed = arguments.time or arguments.as_of is not None or opened.dialect.is_topic
    source = TableSource(
        arguments.source,
        arguments.source_format,
        mapping,
        times=accepted_times(any_time=arguments.any_time, may_be_missing=bool(is_timed)),
        take=frozenset(arguments.take),
        skip=frozenset(arguments.skip),
    )
    done = ingest(opened, source)
    for note in (*done.notes, *(() if arguments.quiet else done.choices)):
        print(f"ingest: {note}", file=sys.stderr)
    if is_new and warehouse.has(opened.name):
        print(f"ingest: {unlisted_stream(opened.name, warehouse.streams())}", file=sys.stderr)
    return done


@job("ingest", "Append new rows of another table.", _add_arguments, engine=None)
def main(run: JobRun) -> JobResult:
    """Append the new rows of another table to a stream."""
    done = _ingest(run)
    seconds = run.seconds
    text = f"ingest: stored {counted(done.messages, 'message')} ({counted(done.bytes, 'byte')}); {seconds:.1f} s"
    return JobResult(asdict(done) | {"seconds": seconds}, text)


if __name__ == "__main__":
    raise SystemExit(main())
