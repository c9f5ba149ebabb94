"""Groups of tasks: the steps of one stream, or of a batch, one behind the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import AssetAlias, TaskGroup, task_group

from airflow_dags.approve import ApproveOperator
from airflow_dags.assets import asset_of
from airflow_dags.batch_tasks import BatchOperator, FailedOperator, OutcomesOperator
from airflow_dags.batches import Batch
from airflow_dags.engine import Engine
from airflow_dags.steps import APPLY, COMPACT, PLAN, RECLAIM, Step
from airflow_dags.streams import group_id
from airflow_dags.tasks import Before, JobOperator

_INDEX = "map_index_template"
_MOST_CHARACTERS = 200


@dataclass(frozen=True)
class Work:
    """The tasks of a DAG have this in common."""

    engine: Engine
    dag_id: str
    started: Mapping[str, Any]
    """Options of the tasks that start the engine."""
    asking: Mapping[str, Any]
    """Options of the tasks that ask a person."""

    def step(self, step: Step, **options: Any) -> Any:
        """A step of one stream."""
        given = {"task_id": step.name, "engine": self.engine, "step": step, **self.started}
        if self.engine.cluster is None:
            return JobOperator(**given | options)
        # The provider is needed, and takes its time to load, only with a cluster.
        from airflow_dags.submit import SubmitOperator

        return SubmitOperator(cluster=self.engine.cluster, **given | options)

    def batch_step(self, step: Step, **options: Any) -> Any:
        """A step of a batch."""
        given = {"task_id": step.name, "engine": self.engine, "step": step, **self.started}
        if self.engine.cluster is None:
            return BatchOperator(**given | options)
        from airflow_dags.submit import SubmitBatchOperator

        return SubmitBatchOperator(cluster=self.engine.cluster, **given | options)


def stream_tasks(work: Work, stream: str) -> Any:
    """The tasks of one stream; the first."""
    with TaskGroup(group_id(stream), group_display_name=stream):
        plan = work.step(PLAN, stream=stream)
        plan >> _from_approval(work, asset_of(work.dag_id, stream), stream=stream)
    return plan


def batch_tasks(work: Work, batch: Batch) -> Any:
    """The tasks of a batch; the first.

    Streams about which a person has to be asked go on by themselves, in a group of tasks that is mapped over their
    plans; those that failed each have a task that fails for them.
    """
    alias = AssetAlias(work.dag_id)
    callbacks = {"on_failure_callback": work.started["on_failure_callback"]}
    with TaskGroup(batch.id, group_display_name=batch.title):
        plan = work.batch_step(PLAN, batch=batch)
        apply = work.batch_step(APPLY, batch=batch, outlets=[alias])
        compact = work.batch_step(COMPACT, batch=batch)
        reclaim = work.batch_step(RECLAIM, batch=batch)
        outcomes = OutcomesOperator(
            task_id="outcomes",
            engine=work.engine,
            trigger_rule="all_done_min_one_success",
            **callbacks,
        )
        plan >> apply >> compact >> reclaim >> outcomes
        [plan, apply, compact] >> outcomes
        FailedOperator.partial(
            task_id="failed", **callbacks, map_index_template=_name("failure")
        ).expand(failure=outcomes.output)

        @task_group(group_id="asked")  # type: ignore[untyped-decorator]
        def asked(planned: Any) -> None:
            index = {"planned": planned, _INDEX: _name("planned"), "max_active_tis_per_dag": None}
            _from_approval(work, alias, before=Before(plan=plan.task_id), **index)

        asked.expand(planned=plan.output)
    return plan


def _from_approval(work: Work, outlet: Any, **options: Any) -> Any:
    """The steps of a stream that has been planned; the first.

    A step that has nothing to do is skipped, and the next is looked at all the same: hence `none_failed`. Behind a
    rejected plan each step skips itself, and says why.
    """
    asked = {name: value for name, value in options.items() if name != "before"}
    approve = ApproveOperator(task_id="approve", engine=work.engine, **{**work.asking, **asked})
    apply, compact, reclaim = (
        work.step(step, trigger_rule="none_failed", **options, **more)
        for step, more in ((APPLY, {"outlets": [outlet]}), (COMPACT, {}), (RECLAIM, {}))
    )
    approve >> apply >> compact >> reclaim
    return approve


def _name(field: str) -> str:
    """The template by which Airflow shows the stream of a mapped task."""
    return f"{{{{ task.{field}.stream[:{_MOST_CHARACTERS}] }}}}"
