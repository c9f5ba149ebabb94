"""Task groups: the steps of one stream, in sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import TaskGroup

from airflow_dags.approve import ApproveOperator
from airflow_dags.assets import asset_of
from airflow_dags.engine import Engine
from airflow_dags.steps import APPLY, COMPACT, PLAN, RECLAIM, SYNC, Step
from airflow_dags.streams import group_id
from airflow_dags.tasks import JobOperator


@dataclass(frozen=True)
class Work:
    """The common settings of a DAG's tasks."""

    engine: Engine
    dag_id: str
    started: Mapping[str, Any]
    """Options of the tasks that start the engine."""
    asking: Mapping[str, Any]
    """Options of the tasks that ask a person."""
    verify: Step | None = None
    """The verification at the end; None: there is none."""

    def step(self, step: Step, **options: Any) -> Any:
        """A step of one stream."""
        given = {"task_id": step.name, "engine": self.engine, "step": step, **self.started}
        if self.engine.cluster is None:
            return JobOperator(**given | options)
        # Imported here: the provider loads slowly, and only a cluster needs it.
        from airflow_dags.submit import SubmitOperator

        return SubmitOperator(cluster=self.engine.cluster, **given | options)


def stream_tasks(work: Work, stream: str, *, is_copy: bool = False) -> Any:
    """Create the tasks of one stream, of a copy with a sync before the plan; returns the first."""
    with TaskGroup(group_id(stream), group_display_name=stream):
        # A dry run skips the sync, and plans.
        plan = work.step(
            PLAN, stream=stream, **({"trigger_rule": "none_failed"} if is_copy else {})
        )
        approve, reclaim = steps_from_approval(work, asset_of(work.dag_id, stream), stream=stream)
        plan >> approve
        if work.verify is not None:
            reclaim >> work.step(work.verify, stream=stream, trigger_rule="none_failed")
        if not is_copy:
            return plan
        sync = work.step(SYNC, stream=stream)
        sync >> plan
        return sync


def steps_from_approval(work: Work, outlet: Any, **options: Any) -> tuple[Any, Any]:
    """Create the steps of a planned stream; returns the first and the last.

    A step with nothing to do is skipped, and the next one still runs: hence `none_failed`. After a
    rejected plan each step skips itself, and gives the reason.
    """
    asked = {name: value for name, value in options.items() if name != "before"}
    approve = ApproveOperator(task_id="approve", engine=work.engine, **{**work.asking, **asked})
    apply, compact, reclaim = (
        work.step(step, trigger_rule="none_failed", **options, **more)
        for step, more in ((APPLY, {"outlets": [outlet]}), (COMPACT, {}), (RECLAIM, {}))
    )
    approve >> apply >> compact >> reclaim
    return approve, reclaim
