"""Job: fold ack logs into a stream's consumers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from retention import open_warehouse
from retention.errors import UsageError
from retention.interest.ack_fold import FoldedLog
from retention.jobs.arguments import add_any_time, job_parser
from retention.jobs.running import JobResult, run_job, seconds_since
from retention.views.ack_fold import folded_entry, folded_lines
from retention.views.wording import lines_text


def main() -> int:
    """Run the job.

    Returns:
        Its exit code.
    """
    parser = job_parser("fold", "Fold ack logs into a stream's consumers, once.")
    parser.add_argument("--log", action="append", required=True, metavar="PATH", help="in order")
    parser.add_argument("--name", help="the log's name at any location; default: its path")
    add_any_time(parser)
    arguments = parser.parse_args()

    def work(started: int) -> JobResult:
        done = run(arguments)
        logs = [folded_entry(log) for log in done]
        text = "\n".join(lines_text(folded_lines(log)) for log in done)
        return JobResult({"logs": logs, "seconds": seconds_since(started)}, text)

    return run_job("fold", arguments, work)


def run(arguments: argparse.Namespace) -> Sequence[FoldedLog]:
    """Fold the logs that the arguments name into the consumers of their stream."""
    if len(arguments.stream) != 1 or arguments.as_of is not None:
        raise UsageError(
            "a log belongs to one stream, and to no instant: give one --stream and no --as-of"
        )
    place = arguments.warehouse or arguments.config
    warehouse = open_warehouse(place, engine=arguments.engine, clock=time.time_ns)
    consumers = warehouse.stream(arguments.stream[0]).consumers
    return consumers.fold(*arguments.log, name=arguments.name, any_time=arguments.any_time)


if __name__ == "__main__":
    raise SystemExit(main())
