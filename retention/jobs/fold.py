"""Job: fold ack logs into a stream's consumers."""

from __future__ import annotations

import argparse

from retention.errors import UsageError
from retention.jobs.arguments import add_any_time
from retention.jobs.running import JobResult, JobRun, job
from retention.views.ack_fold import folded_entry, folded_lines
from retention.views.wording import lines_text


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log",
        action="append",
        required=True,
        metavar="PATH",
        help="a log; may be repeated, in order",
    )
    parser.add_argument("--name", help="the log's name at any location; default: its path")


@job("fold", "Fold ack logs into a stream's consumers, once.", _add_arguments, add_any_time)
def main(run: JobRun) -> JobResult:
    """Fold the named logs into the consumers of their stream."""
    arguments = run.arguments
    if len(arguments.stream) != 1 or arguments.as_of is not None:
        raise UsageError(
            "a log belongs to one stream, and to no instant: give one --stream and no --as-of"
        )
    consumers = run.open().stream(arguments.stream[0]).consumers
    done = consumers.fold(*arguments.log, name=arguments.name, any_time=arguments.any_time)
    logs = [folded_entry(log) for log in done]
    text = "\n".join(lines_text(folded_lines(log)) for log in done)
    return JobResult({"logs": logs, "seconds": run.seconds}, text)


if __name__ == "__main__":
    raise SystemExit(main())
