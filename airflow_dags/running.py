"""Running one job of the engine as a task: its arguments, its ending, and the last sentence in the log."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from airflow.sdk.execution_time.context import context_to_airflow_vars

from airflow_dags.ending import Ending, read_ending
from airflow_dags.engine import Engine
from airflow_dags.files import has_page, job_report, page_path
from airflow_dags.links import links_of
from airflow_dags.options import arguments_of
from airflow_dags.steps import SKIPPED, OtherReleaseError, Step, parameter_mistake

Result = TypeVar("Result")
log = logging.getLogger(__name__)

BARE = {"PYTHONPATH": "", "PYTHONHOME": ""}
"""Variables that hide Airflow's own folders from the engine; an empty variable counts as unset."""


class Launcher:
    """The launcher of a step's job: in a process on the worker, or on a cluster."""

    engine: Engine
    step: Step

    def launch(self, arguments: list[str], variables: Mapping[str, str], context: Context) -> int:
        """Run the job to its end; returns its exit code."""
        raise NotImplementedError

    def on_kill(self) -> None:
        """Terminate the job."""
        raise NotImplementedError


class JobTask(Launcher, Generic[Result]):
    """A task that runs a step's job on one or more streams; subclasses choose the streams and interpret the report."""

    task_id: str
    execution_timeout: Any
    outlets: Sequence[Any]

    def work(self, context: Context) -> Result:
        """Do the work of the task, by `run_job`."""
        raise NotImplementedError

    def execute(self, context: Context) -> Result:
        """Run the step's job and return its result.

        Raises:
            AirflowSkipException: the step does not apply to this run, or there was nothing to do.
            AirflowFailException: the job failed, and a retry would fail, too.
            AirflowException: a stream was busy, or the job was terminated from outside.
        """
        try:
            return self._worked(context)
        except AirflowException as error:
            say_last(error)
            raise

    def _worked(self, context: Context) -> Result:
        try:
            return self.work(context)
        except OtherReleaseError as error:
            raise AirflowFailException(str(error)) from None

    def run_job(
        self, label: str, streams: Sequence[str], arguments: list[str], context: Context
    ) -> tuple[Ending, Path]:
        """Run the job on streams; returns its ending, and the path of its report.

        Args:
            label: the name of the stream or batch in sentences.
            streams: the streams to process.
            arguments: the step's own arguments.
            context: Airflow's context.
        """
        ti = context["ti"]
        path = job_report(self.engine, ti, self.task_id)
        page = page_path(path) if has_page(self.engine, self.step.job) else None
        path.parent.mkdir(parents=True, exist_ok=True)
        for written in (path, page_path(path)):
            written.unlink(missing_ok=True)
        shared = [
            f"--config={self.engine.config}",
            f"--engine={self.engine.engine}",
            *(f"--stream={stream}" for stream in streams),
            f"--report-file={path}",
            *([] if page is None else [f"--report-html={page}"]),
            *arguments_of(self.engine.options, self.step.name, label),
            *_ends(),
        ]
        variables = context_to_airflow_vars(context, in_env_var_format=True)
        try:
            code = self.launch([*shared, *arguments], variables, context)
        except AirflowTaskTimeout:
            self.on_kill()
            raise AirflowFailException(
                f"{label}: {self.step.name} did not finish within {self.execution_timeout} and was stopped; nothing "
                "is half done; give it more time, or see in the log above what it waits for"
            ) from None
        if page is not None and page.exists():
            log.info("%s: %s shows its streams", label, page)
        ending = read_ending(code, path)
        if code == 0 and ending.report is None:
            raise AirflowFailException(
                f"{path}: the job succeeded, but wrote no report here; name a folder that it can write to"
            )
        return ending, path


def fail(step: Step, ending: Ending) -> NoReturn:
    """Fail the task of a step after its job failed, finally or for a retry.

    Raises:
        AirflowFailException: a retry would fail, too.
        AirflowException: a retry may help.
    """
    may_pass = ending.is_to_be_tried_again or ending.code in step.passing
    kind = AirflowException if may_pass else AirflowFailException
    raise kind(f"{ending.sentence} (exit code {ending.code})")


def run_parameters(label: str, context: Context) -> dict[str, Any]:
    """The parameters of the run.

    Raises:
        AirflowFailException: a parameter is unknown, has no effect, or lifts a refusal for all streams.
    """
    params = dict(context["params"])
    mistake = parameter_mistake(context["dag_run"].conf or {}, params)
    if mistake is not None:
        raise AirflowFailException(f"{label}: {mistake}")
    return params


class ProcessOperator(Launcher, BaseOperator):  # type: ignore[misc]
    """A job by `<environment>/bin/python -m retention.jobs.…` on Airflow's worker."""

    template_fields: Sequence[str] = ("variables",)

    def __init__(self, *, engine: Engine, step: Step, **options: Any) -> None:
        super().__init__(**options)
        self.engine, self.step = engine, step
        self.operator_extra_links = links_of(engine, step)
        self.variables = dict(engine.variables)

    def launch(self, arguments: list[str], variables: Mapping[str, str], context: Context) -> int:
        """Run the job in a child process, without a shell; returns its exit code, negative for a signal."""
        environment = {**os.environ, **BARE, **variables, **self.variables}
        command = [
            present(self.engine, "python"),
            "-m",
            f"retention.jobs.{self.step.job}",
            *arguments,
        ]
        return int(self._process.run_command(command, env=environment).exit_code)

    @cached_property
    def _process(self) -> SubprocessHook:
        return SubprocessHook()

    def on_kill(self) -> None:
        """Ask the job and all its child processes to terminate."""
        process = self._process.sub_process
        if process is not None and process.poll() is None:
            self._process.send_sigterm()


def present(engine: Engine, name: str) -> str:
    """The path of a program of the engine's environment.

    Raises:
        AirflowFailException: the program does not exist on this worker.
    """
    program = engine.program(name)
    if not Path(program).exists():
        raise AirflowFailException(
            f"{program}: is not on this worker; install the engine there, or correct `environment`"
        )
    return program


def skip_task(context: Context, reason: str) -> NoReturn:
    """Skip a task, with the reason as the last line of the log and in XCom.

    Raises:
        AirflowSkipException: always.
    """
    context["ti"].xcom_push(key=SKIPPED, value=reason)
    log.info("%s", reason)
    raise AirflowSkipException(reason)


def say_last(error: BaseException) -> None:
    """Log the sentence of a failure as the last visible line: Airflow's own lines follow in a folded group."""
    if not isinstance(error, AirflowSkipException):
        log.error("%s", error)


def log_failure(context: Context) -> None:
    """Log a failure as one sentence: the DAG, the task and the reason."""
    ti = context["ti"]
    log.error("%s %s failed: %s", ti.dag_id, ti.task_id, context.get("exception"))


def _ends() -> list[str]:
    """The arguments that end a job with this task's runner and supervisor, however these end."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # neither Linux 5.3 nor later
        return []
    return [f"--end-with={process}" for process in (os.getpid(), os.getppid()) if process > 1]
