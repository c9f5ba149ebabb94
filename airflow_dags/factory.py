"""DAGs of maintenance: plan, approve, apply, compact, reclaim, in one group of tasks for each stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, Context, Param, TaskGroup

from airflow_dags.approve import ApproveOperator
from airflow_dags.configuration import configuration_task
from airflow_dags.engine import Engine
from airflow_dags.steps import APPLY, COMPACT, PLAN, RECLAIM, Step
from airflow_dags.streams import group_id, names_or_last
from airflow_dags.tasks import JobOperator, log_failure

POOL = "retention"
TASKS: Mapping[str, Any] = {
    "pool": POOL,
    "retries": 3,
    "retry_delay": timedelta(minutes=5),
    "execution_timeout": timedelta(hours=2),
    "max_active_tis_per_dag": 1,
}
"""Options of the tasks that start the engine, unless a DAG says otherwise."""
APPROVAL: Mapping[str, Any] = {
    "response_timeout": timedelta(hours=12),
    "retries": 5,
    "retry_delay": timedelta(minutes=1),
}
"""Options of the tasks that ask, unless a DAG says otherwise."""


def retention_dag(
    dag_id: str,
    engine: Engine,
    *,
    streams: Sequence[str] | None = None,
    tasks: Mapping[str, Any] | None = None,
    approval: Mapping[str, Any] | None = None,
    on_failure: Sequence[Callable[[Context], None]] = (),
    **options: Any,
) -> DAG:
    """A DAG that maintains streams, each in a group of tasks of its own.

    Args:
        dag_id: its id, and the first part of the assets' names: `<dag_id>/<stream>`.
        engine: where the engine is, and how tasks start it.
        streams: the streams; None: all that the configuration lists.
        tasks: options of the tasks that start the engine, over those of `TASKS`.
        approval: options of the tasks that ask a person, over those of `APPROVAL`: `notifiers`, `assigned_users`.
        on_failure: callbacks of a failed task, behind the one that logs its sentence.
        options: options of the DAG, `schedule` first.

    Raises:
        ValueError: the configuration cannot be read, and never could be.
    """
    listed, mistake = names_or_last(engine.config, Path(engine.reports, dag_id, "streams.json"))
    names = listed if streams is None else list(streams)
    held_up = names if mistake else [name for name in names if name not in listed]
    if held_up and mistake is None:
        mistake = f"{engine.config}: does not list {', '.join(held_up)}; leave that out, or list it"
    callbacks = [log_failure, *on_failure]
    started = {**TASKS, "on_failure_callback": callbacks, **(tasks or {})}
    asking = {**APPROVAL, "on_failure_callback": callbacks, **(approval or {})}
    with DAG(dag_id, params=_params(names), **_OPTIONS | options) as dag:
        first = configuration_task(mistake, on_failure_callback=callbacks)
        for name in names:
            with TaskGroup(group_id(name), group_display_name=name):
                asset = Asset(f"{dag_id}/{quote(name)}")
                plan = _stream_tasks(engine, name, asset, started, asking)
            if mistake is None or name in held_up:
                first >> plan
    return dag


_OPTIONS: dict[str, Any] = {
    "schedule": None,
    "catchup": False,
    "max_active_runs": 16,
    "tags": ["retention"],
    "doc_md": "Retention of message streams: `docs/airflow.md` says what each task does, and when it fails.",
}


def _params(names: Sequence[str]) -> dict[str, Param]:
    """The form of a run that is started by hand."""
    return {
        "streams": Param(
            [],
            type="array",
            items={"type": "string", "enum": list(names)},
            examples=list(names),
            title="Streams",
            description="All, if none is chosen",
        ),
        "as_of": Param(
            None,
            type=["null", "string"],
            title="As of",
            description="2026-11-20T00:00:00Z, 2026-11-20 or now-1d; the instant of planning, if empty",
        ),
        "dry_run": Param(
            default=False,
            type="boolean",
            title="Dry run",
            description="Plan, and change nothing",
        ),
        "allow_large": _lift("Allow large", "more goes than `guards` let go"),
        "allow_rewind": _lift("Allow rewind", "the instant is before the last applied one"),
    }


def _lift(title: str, what: str) -> Param:
    """The parameter that lifts a refusal of the chosen streams, once, with a person's reason."""
    return Param(
        None,
        type=["null", "string"],
        maxLength=200,
        title=title,
        description=f"The reason why this run may apply although {what}; it is kept with the run. Choose streams, too",
    )


def _stream_tasks(
    engine: Engine,
    stream: str,
    asset: Asset,
    started: Mapping[str, Any],
    asking: Mapping[str, Any],
) -> Any:
    """The tasks of one stream, one behind the other; the first.

    A step that has nothing to do is skipped, and the next is looked at all the same: hence `none_failed`. Behind a
    rejected plan each step skips itself, and says why.
    """

    def task(step: Step, **more: Any) -> Any:
        options = {"task_id": step.name, "stream": stream, "step": step, **started, **more}
        if engine.cluster is None:
            return JobOperator(engine=engine, **options)
        # The provider is needed, and takes its time to load, only with a cluster.
        from airflow_dags.submit import SubmitOperator

        return SubmitOperator(engine=engine, cluster=engine.cluster, **options)

    plan = task(PLAN)
    approve = ApproveOperator(task_id="approve", engine=engine, stream=stream, **asking)
    apply = task(APPLY, trigger_rule="none_failed", outlets=[asset])
    compact = task(COMPACT, trigger_rule="none_failed")
    reclaim = task(RECLAIM, trigger_rule="none_failed")
    plan >> approve >> apply >> compact >> reclaim
    return plan
