"""Tasks of a stream: each runs one job of the engine; the job's report is the result, its sentence the error."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_dags.assets import update_assets
from airflow_dags.ending import Ending
from airflow_dags.engine import Engine
from airflow_dags.running import JobTask, ProcessOperator, fail, run_parameters, skip_task
from airflow_dags.steps import (
    ASKED,
    ASKING,
    Counts,
    NotPlannedError,
    Past,
    Step,
    is_nothing,
    past_of,
    reason_of_nothing,
    reason_to_skip,
    refusal,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Before:
    """The inputs of a step: its parameters, and the planning and approval tasks."""

    parameters: Mapping[str, Any] | None = None
    """The step's own parameters; None: those of the run, without unknown ones."""
    plan: str | None = None
    """The id of the planning task; None: `plan` of the same group."""
    approve: str | None = None
    """The id of the approval task; None: `approve` of the same group."""


class OneStream:
    """The stream of a task: named, or that of the plan of a mapped task group."""

    named: str
    planned: Counts | None
    """The plan, a template field filled in by Airflow; None: the task `plan` has it."""

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self.named if self.planned is None else str(self.planned["stream"])

    def plan_of(self, ti: Any, task_id: str) -> Counts | None:
        """The counts of the plan; None: there is no plan."""
        if self.planned is not None:
            return self.planned
        plan: Counts | None = ti.xcom_pull(task_ids=task_id)
        return plan


class StepTask(OneStream, JobTask[Counts]):
    """A step of one stream as a task: its reasons to skip, its job, and its result."""

    before: Before

    def work(self, context: Context) -> Counts:
        """Run the step's job and return the counts of its report."""
        past = self._past(context)
        reason = reason_to_skip(self.step, self.stream, past)
        if reason is not None:
            skip_task(context, reason)
        try:
            arguments = self.step.arguments(past)
        except NotPlannedError as error:
            raise AirflowFailException(f"{self.stream}: {error}") from None
        ending, path = self.run_job(self.stream, [self.stream], arguments, context)
        return self._judge(ending, path, context, past)

    def _judge(self, ending: Ending, path: Path, context: Context, past: Past) -> Counts:
        if ending.code != 0 or ending.report is None:
            fail(self.step, ending)
        counts = counts_of(
            self.engine, self.step, ending.entry, ending.report["as_of_ns"], str(path)
        )
        if "undo" in counts:
            removed = "rows" if "rows" in counts else "messages"
            log.info("%s: %s restores the removed %s", self.stream, counts["undo"], removed)
        refused = refusal(self.step, counts, past)
        if refused is not None:
            context["ti"].xcom_push(key="return_value", value=counts)
            raise AirflowFailException(refused)
        if is_nothing(self.step, counts):
            context["ti"].xcom_push(key="return_value", value=counts)
            skip_task(context, reason_of_nothing(self.stream, counts))
        if not update_assets(self.outlets, self.stream, counts, context):
            context["ti"].xcom_push(key="return_value", value=counts)
            skip_task(context, f"{self.stream}: nothing to do: run {counts['run']} is done")
        return counts

    def _past(self, context: Context) -> Past:
        params = self.before.parameters
        if params is None:
            params = run_parameters(self.stream, context)
        ti = context["ti"]
        approve = self.before.approve or beside(self.task_id, "approve")
        # Airflow logs an error for each missing value if an index is named.
        index = {} if self.planned is None else {"map_indexes": ti.map_index}
        asking = ti.xcom_pull(task_ids=approve, key=ASKING, **index)
        answer, asked = (
            None if asking else ti.xcom_pull(task_ids=approve, key=key, **index)
            for key in ("return_value", ASKED)
        )
        plan = self.plan_of(ti, self.before.plan or beside(self.task_id, "plan"))
        return past_of(params, plan, answer, asked, asking)


class JobOperator(StepTask, ProcessOperator):
    """A step of one stream by `<environment>/bin/python -m retention.jobs.…` on Airflow's worker."""

    template_fields: Sequence[str] = (*ProcessOperator.template_fields, "planned")

    def __init__(
        self,
        *,
        engine: Engine,
        step: Step,
        stream: str = "",
        planned: Counts | None = None,
        before: Before | None = None,
        **options: Any,
    ) -> None:
        if engine.cluster is not None:
            raise ValueError(
                f"{options.get('task_id')}: runs on Airflow's worker, and the engine has a cluster; leave out"
                " `cluster=`, or let `retention_dag` make the tasks, which submits them"
            )
        super().__init__(engine=engine, step=step, **options)
        self.named, self.planned = stream, planned
        self.before = before or Before()


def counts_of(
    engine: Engine, step: Step, entry: Mapping[str, Any], as_of_ns: int, report: str
) -> Counts:
    """The counts of a stream's entry in a report, with the report's path and the command to undo its run."""
    counts = step.counts(entry) | {"as_of_ns": as_of_ns, "report": report}
    if counts.get("run") and (counts.get("messages") or counts.get("rows")):
        counts["undo"] = engine.command("undo", counts["run"])
    return counts


def beside(task_id: str, name: str) -> str:
    """The id of a task of the same group.

    >>> beside("ORDERS.apply", "plan"), beside("apply", "plan")
    ('ORDERS.plan', 'plan')
    """
    group, dot, _ = task_id.rpartition(".")
    return f"{group}{dot}{name}"
