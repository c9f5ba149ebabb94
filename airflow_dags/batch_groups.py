"""Task groups of a batch: its steps, and a separate task for each stream that needs a person's attention."""

from __future__ import annotations

from typing import Any

from airflow.sdk import AssetAlias, TaskGroup, task_group

from airflow_dags.batch_tasks import BatchOperator, FailedOperator, OutcomesOperator
from airflow_dags.batches import Batch
from airflow_dags.groups import Work, steps_from_approval
from airflow_dags.steps import MAINTAIN, PLAN, RECLAIM, SYNC_ALL, Step
from airflow_dags.tasks import Before

_INDEX = "map_index_template"
_MOST_CHARACTERS = 200


def batch_tasks(work: Work, batch: Batch) -> Any:
    """Create the tasks of a batch, with a sync before the pass if it has copies; returns the first.

    A pass processes all its streams. Streams that the pass refuses to change are planned; those
    that need an approval continue in a task group mapped over their plans. Each failed stream has a
    task that fails for it.
    """
    alias = AssetAlias(work.dag_id)
    callbacks = {"on_failure_callback": work.started["on_failure_callback"]}
    with TaskGroup(batch.id, group_display_name=batch.title):
        # A sync is skipped in a run without copies, and the pass still runs.
        rule = {"trigger_rule": "none_failed"} if batch.copies else {}
        apply = _step(work, MAINTAIN, batch=batch, outlets=[alias], **rule)
        plan = _step(work, PLAN, batch=batch, trigger_rule="none_failed")
        reclaim = _step(work, RECLAIM, batch=batch)
        outcomes = OutcomesOperator(
            task_id="outcomes",
            engine=work.engine,
            verify=work.verify,
            trigger_rule="all_done",
            **callbacks,
        )
        apply >> [plan, reclaim] >> outcomes
        apply >> outcomes
        if work.verify is not None:
            reclaim >> _step(work, work.verify, batch=batch, trigger_rule="none_failed") >> outcomes
        FailedOperator.partial(
            task_id="failed", **callbacks, map_index_template=_name("failure")
        ).expand(failure=outcomes.output)

        @task_group(group_id="asked")  # type: ignore[untyped-decorator]
        def asked(planned: Any) -> None:
            index = {"planned": planned, _INDEX: _name("planned"), "max_active_tis_per_dag": None}
            steps_from_approval(work, alias, before=Before(plan=plan.task_id), **index)

        asked.expand(planned=plan.output)
        if not batch.copies:
            return apply
        sync = _step(work, SYNC_ALL, batch=batch)
        sync >> apply
        sync >> outcomes
    return sync


def _step(work: Work, step: Step, **options: Any) -> Any:
    given = {"task_id": step.name, "engine": work.engine, "step": step, **work.started, **options}
    if work.engine.cluster is None:
        return BatchOperator(**given)
    from airflow_dags.submit import SubmitBatchOperator

    return SubmitBatchOperator(cluster=work.engine.cluster, **given)


def _name(field: str) -> str:
    """The template of the stream's name in Airflow's display of a mapped task."""
    return f"{{{{ task.{field}.stream[:{_MOST_CHARACTERS}] }}}}"
