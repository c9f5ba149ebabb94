"""Tasks of a stream: each runs one job of the engine, whose report is its result and whose sentence its error."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from airflow.sdk.execution_time.context import InletEventsAccessors, context_to_airflow_vars

from airflow_dags.ending import Ending, read_ending
from airflow_dags.engine import Engine
from airflow_dags.options import arguments_of
from airflow_dags.steps import (
    ASKED,
    ASKING,
    SKIPPED,
    Counts,
    NotPlannedError,
    Past,
    Step,
    is_nothing,
    parameter_mistake,
    past_of,
    reason_of_nothing,
    reason_to_skip,
    refusal,
)

log = logging.getLogger(__name__)

BARE = {"PYTHONPATH": "", "PYTHONHOME": ""}
"""Airflow's own folders are not the engine's: an empty variable is an absent one."""
_EVENTS = 100
"""The newest events of a stream's asset among which that of an earlier try is looked for."""


@dataclass(frozen=True)
class Before:
    """What a step goes by: its parameters, and the tasks that have planned and asked."""

    parameters: Mapping[str, Any] | None = None
    """The step's own parameters; None: those of the run, of which none may be unknown."""
    plan: str | None = None
    """The id of the task that has planned; None: `plan` of the same group."""
    approve: str | None = None
    """The id of the task that has asked; None: `approve` of the same group."""


class StepTask:
    """A step of a stream as a task: what it skips for, what it starts, and how it ends."""

    engine: Engine
    stream: str
    step: Step
    before: Before
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
        try:
            return self._done(context)
        except AirflowException as error:
            say_last(error)
            raise

    def _done(self, context: Context) -> Counts:
        past = self._past(context)
        reason = reason_to_skip(self.step, self.stream, past)
        if reason is not None:
            skip_task(context, reason)
        try:
            arguments = self.step.arguments(past)
        except NotPlannedError as error:
            raise AirflowFailException(f"{self.stream}: {error}") from None
        path = self._report_path(context)
        ending = self._run(arguments, path, context)
        return self._judge(ending, path, context, past)

    def _run(self, arguments: list[str], path: Path, context: Context) -> Ending:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shared = [
            f"--config={self.engine.config}",
            f"--engine={self.engine.engine}",
            f"--stream={self.stream}",
            f"--report-file={path}",
            *arguments_of(self.engine.options, self.step.name, self.stream),
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

    def _judge(self, ending: Ending, path: Path, context: Context, past: Past) -> Counts:
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
        if counts.get("run") and counts["messages"]:
            counts["undo"] = self.engine.command("undo", counts["run"])
            log.info("%s: %s brings back what has gone", self.stream, counts["undo"])
        refused = refusal(self.step, counts, past)
        if refused is not None:
            context["ti"].xcom_push(key="return_value", value=counts)
            raise AirflowFailException(f"apply would refuse this plan: {refused}")
        if is_nothing(self.step, counts):
            context["ti"].xcom_push(key="return_value", value=counts)
            skip_task(context, reason_of_nothing(self.stream, counts))
        self._update_assets(counts, context)
        return counts

    def _update_assets(self, counts: Counts, context: Context) -> None:
        """Update the stream's asset, unless the try that committed the run has lived to do so.

        Raises:
            AirflowSkipException: it has.
        """
        for asset in self.outlets:
            if counts.get("is_of_earlier_try"):
                events = (
                    InletEventsAccessors([asset])[asset].ascending(ascending=False).limit(_EVENTS)
                )
                if any((event.extra or {}).get("run") == counts["run"] for event in events):
                    context["ti"].xcom_push(key="return_value", value=counts)
                    skip_task(context, f"{self.stream}: nothing to do: run {counts['run']} is done")
            context["outlet_events"][asset].extra = counts

    def _past(self, context: Context) -> Past:
        params = self.before.parameters
        if params is None:
            params = dict(context["params"])
            mistake = parameter_mistake(context["dag_run"].conf or {}, params)
            if mistake is not None:
                raise AirflowFailException(f"{self.stream}: {mistake}")
        ti = context["ti"]
        approve = self.before.approve or beside(self.task_id, "approve")
        return past_of(
            params,
            ti.xcom_pull(task_ids=self.before.plan or beside(self.task_id, "plan")),
            ti.xcom_pull(task_ids=approve),
            ti.xcom_pull(task_ids=approve, key=ASKED),
            ti.xcom_pull(task_ids=approve, key=ASKING),
        )

    def _report_path(self, context: Context) -> Path:
        ti = context["ti"]
        name = f"{self.task_id}.{ti.try_number}.json"
        return Path(self.engine.reports, ti.dag_id, ti.run_id.replace("/", "_"), name)


class JobOperator(StepTask, BaseOperator):  # type: ignore[misc]
    """A step by `<environment>/bin/python -m jobs.…` on Airflow's worker."""

    template_fields: Sequence[str] = ("variables",)

    def __init__(
        self,
        *,
        engine: Engine,
        stream: str,
        step: Step,
        before: Before | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.engine, self.stream, self.step = engine, stream, step
        self.before = before or Before()
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


def skip_task(context: Context, reason: str) -> NoReturn:
    """Skip a task, with its reason as the last line of the log and in XCom.

    Raises:
        AirflowSkipException: always.
    """
    context["ti"].xcom_push(key=SKIPPED, value=reason)
    log.info("%s", reason)
    raise AirflowSkipException(reason)


def say_last(error: BaseException) -> None:
    """Log the sentence of a failure as the last line that Airflow shows: what it adds lies in a folded group."""
    if not isinstance(error, AirflowSkipException):
        log.error("%s", error)


def beside(task_id: str, name: str) -> str:
    """The id of a task of the same group.

    >>> beside("ORDERS.apply", "plan"), beside("apply", "plan")
    ('ORDERS.plan', 'plan')
    """
    group, dot, _ = task_id.rpartition(".")
    return f"{group}{dot}{name}"


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
