"""The arguments that all jobs share."""

from __future__ import annotations

import argparse

from retention.core.units import SECOND, parse_duration
from retention.errors import RetentionError


def job_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser of the shared arguments."""
    parser = argparse.ArgumentParser(prog=name, description=description)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--config",
        metavar="FILE",
        default="retention.yaml",
        help="the configuration; ./retention.yaml, if nothing is given",
    )
    place.add_argument("--warehouse", metavar="DIR", help="a directory or s3://bucket/prefix")
    parser.add_argument(
        "--stream",
        action="append",
        default=[],
        metavar="NAME",
        help="may be repeated; all streams, if none is given",
    )
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        help="RFC 3339, a date (UTC), now-1d, or nanoseconds since the epoch; now, if not given",
    )
    parser.add_argument("--report-file", metavar="PATH", help="where the report goes, as JSON")
    parser.add_argument(
        "--metrics-file", metavar="PATH", help="where metrics go, in Prometheus's text format"
    )
    parser.add_argument(
        "--openlineage",
        action="store_true",
        help="send OpenLineage events of each stream, as its client is configured",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="json: on standard error a JSON object a line, with stream and run",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing unless something is wrong"
    )
    parser.add_argument(
        "--end-with",
        action="append",
        default=[],
        type=int,
        metavar="PID",
        help="end as soon as this process is gone (Linux); may be repeated",
    )
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    parser.add_argument("--engine", choices=("auto", "spark", "local"), default="spark")
    return parser


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add the argument of jobs that need exclusive access to a stream."""
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=0.0,
        metavar="DURATION",
        help="where another run is at work on a stream, wait so long for its end; not at all, if not given",
    )


def add_any_time(parser: argparse.ArgumentParser) -> None:
    """Add the argument of jobs that ingest messages or acks."""
    parser.add_argument(
        "--any-time",
        action="store_true",
        help="take times before 1990, too: by default they are refused as times in another unit",
    )


def _seconds(text: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except RetentionError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select several streams to a job's parser; `--stream` accepts patterns there."""
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="only streams with this tag; may be repeated. --stream takes patterns, too ('ORDERS_*')",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add the limits after which a job begins no further stream."""
    parser.add_argument(
        "--max-time",
        metavar="DURATION",
        help="begin no further stream after this; most overdue first",
    )
    parser.add_argument(
        "--max-bytes", metavar="SIZE", help="begin none once so much was read and written"
    )
