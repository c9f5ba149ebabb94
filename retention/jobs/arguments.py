"""The arguments that all jobs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from retention.core.units import SECOND, parse_duration
from retention.errors import RetentionError


def job_parser(name: str, description: str, engine: str | None) -> argparse.ArgumentParser:
    """A parser of the shared arguments.

    Args:
        name: the job's.
        description: its sentence in `--help`.
        engine: the default of `--engine`; None: each stream's own.
    """
    parser = argparse.ArgumentParser(prog=name, description=description)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--config",
        metavar="FILE",
        default="retention.yaml",
        help="the configuration (default: ./retention.yaml)",
    )
    place.add_argument("--warehouse", metavar="DIR", help="a directory or s3://bucket/prefix")
    parser.add_argument(
        "--stream",
        action="append",
        default=[],
        metavar="NAME",
        help="a stream (default: all); may be repeated",
    )
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        help="RFC 3339, date (UTC), now-1d, or epoch nanoseconds (default: now)",
    )
    parser.add_argument("--report-file", metavar="PATH", help="write the report there, as JSON")
    parser.add_argument(
        "--metrics-file", metavar="PATH", help="write metrics there, in Prometheus text format"
    )
    parser.add_argument(
        "--openlineage",
        action="store_true",
        help="send OpenLineage events for each stream",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="json: log JSON lines to standard error",
    )
    parser.add_argument("--quiet", action="store_true", help="print only errors and warnings")
    parser.add_argument(
        "--end-with",
        action="append",
        default=[],
        type=int,
        metavar="PID",
        help="end when this process ends (Linux); may be repeated",
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--engine", choices=("auto", "spark", "local"), default=engine)
    return parser


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add the argument of jobs that need exclusive access to a stream."""
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=0.0,
        metavar="DURATION",
        help="wait this long for another run on a stream (default: 0s)",
    )


def without_instant(reason: str) -> Callable[[argparse.Namespace], str | None]:
    """The refusal of `--as-of` by a job that acts at no instant."""
    return lambda arguments: None if arguments.as_of is None else f"{reason}: leave out --as-of"


def add_any_time(parser: argparse.ArgumentParser) -> None:
    """Add the argument of jobs that ingest messages or acks."""
    parser.add_argument(
        "--any-time",
        action="store_true",
        help="accept times before 1990 (refused by default as another unit)",
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
        help="only streams with this tag; may be repeated (--stream takes patterns)",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add the limits after which a job begins no further stream."""
    parser.add_argument(
        "--max-time",
        metavar="DURATION",
        help="start no stream after this; most overdue first",
    )
    parser.add_argument(
        "--max-bytes", metavar="SIZE", help="start no stream after reading and writing this much"
    )
