"""Tasks of a stream: each runs one job of the engine, whose report is its result and whose sentence its error."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

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
from airflow_dags.steps import (
    ASKED,
    Counts,
    NotPlannedError,
    Past,
    Step,
    is_nothing,
    past_of,
    reason_to_skip,
)

log = logging.getLogger(__name__)

BARE = {"PYTHONPATH": "", "PYTHONHOME": ""}
"""Airflow's own folders are not the engine's: an empty variable is an absent one."""


class StepTask:
    """A step of a stream as a task: what it skips for, what it starts, and how it ends."""

    engine: Engine
    stream: str
    step: Step
    task_id: str
    execution_timeout: Any
    outlets: Sequence[Any]

    def launch(self, arguments: list[str], variables: Mapping[str, str], context: Context) -> int:
        """Run the job to its end; its exit code."""
        raise NotImplementedError

    def on_kill(self) -> None:
        """End the job."""
        raise NotImplementedError

    def execute(self, context: Context) -> Counts:
        """Run the step's job and return the counts of its report.

        Raises:
            AirflowSkipException: the step is not for this run, or there was nothing to do.
            AirflowFailException: the job has failed, and would again.
            AirflowException: the stream was busy, or the job was ended from outside.
        """
        past = self._past(context)
        reason = reason_to_skip(self.step, self.stream, past)
        if reason is not None:
            raise AirflowSkipException(reason)
        try:
            arguments = self.step.arguments(past)
        except NotPlannedError as error:
            raise AirflowFailException(f"{self.stream}: {error}") from error
        path = self._report_path(context)
        ending = self._run(arguments, path, context)
        return self._judge(ending, path, context)

    def _run(self, arguments: list[str], path: Path, context: Context) -> Ending:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shared = [
            f"--config={self.engine.config}",
            f"--engine={self.engine.engine}",
            f"--stream={self.stream}",
            f"--report-file={path}",
            *_ends(),
        ]
        variables = context_to_airflow_vars(context, in_env_var_format=True)
        try:
            code = self.launch([*shared, *arguments], variables, context)
        except AirflowTaskTimeout:
            self.on_kill()
            raise AirflowFailException(
                f"{self.stream}: {self.step.name} was not done within {self.execution_timeout} and was ended; nothing "
                "is half done; give it more time, or see in the log above what it waits for"
            ) from None
        return read_ending(code, path)

    def _judge(self, ending: Ending, path: Path, context: Context) -> Counts:
        if ending.code != 0:
            kind = AirflowException if ending.is_to_be_tried_again else AirflowFailException
            raise kind(f"{ending.sentence} (exit code {ending.code})")
        if ending.report is None:
            raise AirflowFailException(
                f"{path}: the job has ended well, and its report is not here; name a folder that it can write to"
            )
        counts = self.step.counts(ending.entry) | {
            "as_of_ns": ending.report["as_of_ns"],
            "report": str(path),
        }
        if is_nothing(self.step, counts):
            context["ti"].xcom_push(key="return_value", value=counts)
            raise AirflowSkipException("nothing to do")
        for asset in self.outlets:
            context["outlet_events"][asset].extra = counts
        return counts

    def _past(self, context: Context) -> Past:
        ti, group = context["ti"], self.task_id.rpartition(".")[0]
        return past_of(
            context["params"],
            ti.xcom_pull(task_ids=f"{group}.plan"),
            ti.xcom_pull(task_ids=f"{group}.approve"),
            ti.xcom_pull(task_ids=f"{group}.approve", key=ASKED),
        )

    def _report_path(self, context: Context) -> Path:
        ti = context["ti"]
        name = f"{self.task_id}.{ti.try_number}.json"
        return Path(self.engine.reports, ti.dag_id, ti.run_id.replace("/", "_"), name)


class JobOperator(StepTask, BaseOperator):  # type: ignore[misc]
    """A step by `<environment>/bin/python -m jobs.…` on Airflow's worker."""

    template_fields: Sequence[str] = ("variables",)

    def __init__(self, *, engine: Engine, stream: str, step: Step, **options: Any) -> None:
        super().__init__(**options)
        self.engine, self.stream, self.step = engine, stream, step
        self.variables = dict(engine.variables)

    def launch(self, arguments: list[str], variables: Mapping[str, str], context: Context) -> int:
        """Run the job in a process of its own, without a shell between; its exit code, negative for a signal."""
        python = Path(self.engine.environment, "bin", "python")
        if not python.exists():
            raise AirflowFailException(
                f"{python}: is not on this worker; install the engine there, or correct `environment`"
            )
        environment = {**os.environ, **BARE, **variables, **self.variables}
        command = [str(python), "-m", f"jobs.{self.step.job}", *arguments]
        return int(self._process.run_command(command, env=environment).exit_code)

    @cached_property
    def _process(self) -> SubprocessHook:
        return SubprocessHook()

    def on_kill(self) -> None:
        """Ask the job, and all that it has started, to end."""
        process = self._process.sub_process
        if process is not None and process.poll() is None:
            self._process.send_sigterm()


def _ends() -> list[str]:
    """The arguments by which a job ends with this task's runner, and with its supervisor, however these end."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # neither Linux 5.3 nor later
        return []
    return [f"--end-with={process}" for process in (os.getpid(), os.getppid()) if process > 1]


def log_failure(context: Context) -> None:
    """Log a failure as one sentence: the DAG, the task and the reason."""
    ti = context["ti"]
    log.error("%s %s failed: %s", ti.dag_id, ti.task_id, context.get("exception"))
