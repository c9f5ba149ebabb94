"""Running a job: its report, its errors as sentences, its last line, and its exit code."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from retention import open_warehouse
from retention.config.discovery import find_config, no_own_streams, no_streams
from retention.core.event_log import event_line, logging_events
from retention.core.outcomes import ENDINGS, Outcome, exit_code, exit_code_of, sentence_of
from retention.core.wording import counted
from retention.engines.spark.driver import end_with_spark_submit
from retention.errors import RetentionError, UsageError
from retention.errors.printable import visible_lines
from retention.history.report import FORMAT_VERSION, KIND, REPORT_FILE
from retention.jobs.arguments import job_parser
from retention.jobs.ending import end_with
from retention.startup import spare_pandas, spare_plugins
from retention.storage.outputs import check_output, write_output
from retention.storage.signals import end_between_commits

if TYPE_CHECKING:
    from retention.api.unlisted import UnlistedFinding
    from retention.api.warehouse import Warehouse
    from retention.engines.select import EngineName


_log = logging.getLogger("retention.jobs")


@dataclass(frozen=True)
class JobResult:
    """The result of a job's work."""

    report: dict[str, Any]
    """JSON values, for `--report-file`."""
    text: str
    """The line that it prints, or several."""
    outcomes: Sequence[Outcome[Any]] = ()
    """The outcomes of single streams, whose errors are printed and determine the exit code."""
    exit_code: int = 0
    """The exit code of work without outcomes."""
    warehouse: Warehouse | None = None
    """The warehouse of the streams, for their measures."""
    tables: Sequence[Outcome[Any]] = ()
    """The outcomes of single tables, as `outcomes`."""
    unlisted: UnlistedFinding | None = None
    """The streams to report because no configuration lists them any more."""


@dataclass(frozen=True)
class JobRun:
    """A run of a job."""

    job: str
    """The job's name."""
    arguments: argparse.Namespace
    started_ns: int
    """The instant at which it began, nanoseconds since the epoch."""

    @property
    def seconds(self) -> float:
        """The seconds that have passed since it began."""
        return round((time.time_ns() - self.started_ns) / 1e9, 3)

    def open(self) -> Warehouse:
        """Open its warehouse on the engine of its arguments; it waits for other runs if the job has `--wait`."""
        return open_warehouse(
            self.arguments.warehouse or self.arguments.config,
            engine=self.arguments.engine,
            clock=time.time_ns,
            wait_s=getattr(self.arguments, "wait", 0.0),
        )

    def open_with_streams(self, *, tables: bool = False) -> Warehouse:
        """Open its warehouse; a notice reports one without streams, where the job has nothing to do.

        Args:
            tables: whether the job acts on tables, too.

        Raises:
            UsageError: there is no warehouse.
        """
        warehouse = self.open()
        if tables and warehouse.tables():
            return warehouse
        if not warehouse.config.streams and not warehouse.chosen():
            sentence = no_own_streams if warehouse.streams() else no_streams
            _note(self.job, sentence(warehouse.location))
        return warehouse

    def instant(self, warehouse: Warehouse) -> int:
        """The instant of `--as-of`, by default of its start."""
        as_of = self.arguments.as_of
        return self.started_ns if as_of is None else warehouse.instant(as_of)

    def summary(
        self, outcomes: Sequence[Outcome[Any]], done: str, tables: Sequence[Outcome[Any]] = ()
    ) -> str:
        """Its last line: the streams and tables done and failed, and its work on them."""
        failed = sum(outcome.value is None for outcome in (*outcomes, *tables))
        units = done_units(outcomes, tables)
        return f"{self.job}: {units} done, {failed} failed; {done}; {self.seconds:.1f} s"


def done_units(outcomes: Sequence[Outcome[Any]], tables: Sequence[Outcome[Any]]) -> str:
    """The number of streams that are done and, if there are any, of tables; without those left for the next run."""
    parts = []
    for noun, some in (("stream", outcomes), ("table", tables)):
        done = sum(
            each.value is not None and not getattr(each.value, "is_left", False) for each in some
        )
        parts += [counted(done, noun)] if some or noun == "stream" else []
    return " and ".join(parts)


Work = Callable[[JobRun], JobResult]
"""The work of a job."""


def job(
    name: str,
    description: str,
    *arguments: Callable[[argparse.ArgumentParser], None],
    engine: EngineName | None = "spark",
    refusal: Callable[[argparse.Namespace], str | None] = lambda _: None,
) -> Callable[[Work], Callable[[], int]]:
    """Make a job's `main` of its work; `main` returns the exit code.

    Args:
        name: the name of the job.
        description: its sentence in `--help`.
        arguments: functions that add arguments to those that all jobs share.
        engine: the default of `--engine`; None: each stream's own.
        refusal: the sentence that refuses a combination of arguments, or none.
    """

    def main_of(work: Work) -> Callable[[], int]:
        def main() -> int:
            parser = job_parser(name, description, engine)
            for add in arguments:
                add(parser)
            parsed = parser.parse_args()
            if (sentence := refusal(parsed)) is not None:
                parser.error(sentence)
            return _run_logged(name, parsed, work)

        return main

    return main_of


def _run_logged(name: str, arguments: argparse.Namespace, work: Work) -> int:
    end_between_commits()
    end_with_spark_submit()
    spare_pandas()
    spare_plugins()
    if arguments.log_format == "json":
        least = logging.WARNING if arguments.quiet else logging.INFO
        with logging_events(name, _complain, least):
            return _run(name, arguments, work)
    return _run(name, arguments, work)


def _run(name: str, arguments: argparse.Namespace, work: Work) -> int:
    say = partial(_say, name, arguments)
    started, result = time.time_ns(), None
    try:
        end_with(arguments.end_with)
        _check_outputs(arguments)
        with _lineage(name, arguments):
            result = work(JobRun(name, arguments, started))
        _write_report(arguments.report_file, result.report)
    except ENDINGS as error:  # every error is one sentence and an exit code
        say(sentence_of(error), error)
        _report_failure(arguments.report_file, error)
        code = exit_code_of(error)
    else:
        code = _say_end(name, result, arguments, say)
    try:
        _write_page(arguments, result)
        _write_metrics(name, arguments, started, result, code)
    except ENDINGS as error:
        say(sentence_of(error), error)
        return code or exit_code_of(error)
    return code


def _lineage(name: str, arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """The sender of OpenLineage events, if they are wanted."""
    if not arguments.openlineage:
        return nullcontext()
    from retention.jobs.lineage import sending_lineage

    warehouse = find_config(arguments.warehouse or arguments.config).warehouse
    return sending_lineage(name, warehouse, partial(_note, name))


def _say_end(
    name: str,
    result: JobResult,
    arguments: argparse.Namespace,
    say: Callable[[str, BaseException], None],
) -> int:
    """Print the result of the work; return its exit code."""
    every = [*result.outcomes, *result.tables]
    for outcome in every:
        if outcome.error is not None and arguments.log_format == "text":
            say(outcome.sentence, outcome.error)
    unlisted = result.unlisted
    if unlisted is not None and unlisted.names:
        _note(name, unlisted.sentence)
    if not arguments.quiet:
        print(result.text)
    code = exit_code(every) or result.exit_code
    return code or (0 if unlisted is None else unlisted.exit_code)


def _say(name: str, arguments: argparse.Namespace, text: str, error: BaseException) -> None:
    trace = visible_lines("".join(traceback.format_exception(error)).rstrip())
    if arguments.log_format == "json":
        more = {"traceback": trace} if arguments.debug else {}
        code = exit_code_of(error)
        now = time.time_ns()
        _complain(event_line(name, now, "error", "run_failed", text, exit_code=code, **more))
        return
    if arguments.debug:
        _complain(trace)
    _complain(f"{name}: {text}")


def _note(name: str, text: str) -> None:
    """Print a notice that is not an error, as an event if events are logged."""
    if _log.isEnabledFor(logging.INFO):
        _log.warning("%s", text)
    else:
        _complain(f"{name}: {text}")


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


def _write_page(arguments: argparse.Namespace, result: JobResult | None) -> None:
    """Write the page of a run; do nothing without a path, or after an error of the whole run."""
    path = getattr(arguments, "report_html", None)
    if path is not None and result is not None:
        from retention.jobs.reporting import write_page

        write_page(path, result)


def _write_metrics(
    name: str, arguments: argparse.Namespace, started: int, result: JobResult | None, code: int
) -> None:
    """Write the metrics of a run, including a failed one; do nothing without a path."""
    if arguments.metrics_file is None:
        return
    from retention.api.metrics import write_metrics
    from retention.views.metrics import CommandRun

    outcomes, tables = ((), ()) if result is None else (result.outcomes, result.tables)
    unlisted = () if result is None or result.unlisted is None else result.unlisted.names
    run = CommandRun(name, started, time.time_ns(), code, outcomes, tables, unlisted=unlisted)
    warehouse = None if result is None else result.warehouse
    write_metrics(arguments.metrics_file, run, warehouse, lambda text: _complain(f"{name}: {text}"))


def _report_failure(path: str | None, error: BaseException) -> None:
    """Write the error of a job without a report, for schedulers that show one sentence."""
    failure = {"exit_code": exit_code_of(error), "message": sentence_of(error)}
    # A failure to write the report is the job's own error, already reported.
    with suppress(RetentionError, OSError):
        _write_report(path, {"error": failure})


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse files for the report, the metrics and the page that would replace other content.

    Raises:
        UsageError: a file has other content; or two are the same file.
    """
    from retention.views.metrics import METRICS_FILE

    named = {
        "the report": (arguments.report_file, REPORT_FILE),
        "the metrics": (arguments.metrics_file, METRICS_FILE),
    }
    if getattr(arguments, "report_html", None) is not None:
        from retention.views.report_page import PAGE_FILE

        named["the page"] = (arguments.report_html, PAGE_FILE)
    uses: dict[str, str] = {}
    for use, (path, kind) in named.items():
        if path is None:
            continue
        check_output(path, kind)
        if path in uses:
            raise UsageError(
                f"{path}: is named for {uses[path]} and for {use}; nothing was done; name two files"
            )
        uses[path] = use


def _write_report(path: str | None, report: dict[str, Any]) -> None:
    """Write the report atomically; do nothing without a path."""
    if path is not None:
        document = {"format_version": FORMAT_VERSION, "kind": KIND} | report
        text = json.dumps(document, indent=2, ensure_ascii=False)
        write_output(path, REPORT_FILE, f"{text}\n".encode())
