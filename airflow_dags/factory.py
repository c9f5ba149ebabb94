"""Maintenance DAGs: sync, plan, approve, apply, compact, reclaim, in one task group for each stream or batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Context, Param

from airflow_dags.configuration import UnlistedOperator, configuration_task
from airflow_dags.engine import Engine
from airflow_dags.groups import Work, stream_tasks
from airflow_dags.running import log_failure
from airflow_dags.steps import verify_step
from airflow_dags.streams import UNLISTED, Listed, listed_or_last

POOL = "retention"
TASKS: Mapping[str, Any] = {
    "pool": POOL,
    "retries": 3,
    "retry_delay": timedelta(minutes=5),
    "execution_timeout": timedelta(hours=2),
    "max_active_tis_per_dag": 1,
}
"""Default options of the tasks that start the engine."""
APPROVAL: Mapping[str, Any] = {
    "response_timeout": timedelta(hours=12),
    "retries": 5,
    "retry_delay": timedelta(minutes=1),
}
"""Default options of the tasks that ask for approval."""


def retention_dag(  # noqa: PLR0913  (a person names them)
    dag_id: str,
    engine: Engine,
    *,
    streams: Sequence[str] | None = None,
    batch: int | str | None = None,
    tasks: Mapping[str, Any] | None = None,
    approval: Mapping[str, Any] | None = None,
    verify: str | None = None,
    on_failure: Sequence[Callable[[Context], None]] = (),
    **options: Any,
) -> DAG:
    """A DAG that maintains streams, each in its own task group, or many in one.

    Args:
        dag_id: its id, and the first part of the assets' names: `<dag_id>/<stream>`.
        engine: the location of the engine, and how tasks start it.
        streams: the streams; None: all that the configuration lists.
        batch: the number of streams per task and job; or `group` or `tag`, for one task per group
            of the configuration or per first tag of a stream; None: one stream per task.
        tasks: options of the tasks that start the engine; they override `TASKS`.
        approval: options of the tasks that ask a person; they override `APPROVAL`: `notifiers`, `assigned_users`.
        verify: the share of each stream's files that a last task verifies, such as `1%`; None: no such task.
        on_failure: callbacks of a failed task, after the one that logs its sentence.
        options: options of the DAG, `schedule` first.

    Raises:
        ValueError: the configuration cannot be read, and was never read before; or `batch` is invalid.
    """
    known, mistake = listed_or_last(engine.config, Path(engine.reports, dag_id, "streams.json"))
    names = [stream.name for stream in known] if streams is None else list(dict.fromkeys(streams))
    by_name = {stream.name: stream for stream in known}
    lost = [] if mistake else [name for name in names if name not in by_name]
    if lost:
        mistake = f"{engine.config}: does not list {', '.join(lost)}; leave that out, or list it"
    callbacks = [log_failure, *on_failure]
    started = {**TASKS, "on_failure_callback": callbacks, **(tasks or {})}
    asking = {**APPROVAL, "on_failure_callback": callbacks, **(approval or {})}
    verifying = None if verify is None else verify_step(verify)
    work = Work(engine, dag_id, started, asking, verifying)
    with DAG(dag_id, params=_params(names), **_OPTIONS | options) as dag:
        first = configuration_task(mistake, on_failure_callback=callbacks)
        unlisted = UnlistedOperator(task_id=UNLISTED, engine=engine, **started)
        listed = [by_name.get(name, Listed(name)) for name in names if name not in lost]
        groups, late = _groups(work, listed, lost, batch)
        first >> (late or [unlisted, *groups])
    return dag


def _groups(
    work: Work, listed: Sequence[Listed], lost: Sequence[str], batch: int | str | None
) -> tuple[list[Any], list[Any]]:
    """The first tasks of each group: for listed streams, and for streams no longer listed."""
    if batch is None:
        late = [stream_tasks(work, name) for name in lost]
        return [stream_tasks(work, each.name, is_copy=each.is_copy) for each in listed], late
    # Imported here: a DAG file without batches need not load it.
    from airflow_dags.batch_groups import batch_tasks
    from airflow_dags.batches import Batch, batches

    unknown = [Batch("not-listed", "not listed", tuple(lost))] if lost else []
    late = [batch_tasks(work, each) for each in unknown]
    return [batch_tasks(work, each) for each in batches(listed, batch)], late


_OPTIONS: dict[str, Any] = {
    "schedule": None,
    "catchup": False,
    "max_active_runs": 16,
    "tags": ["retention"],
    "doc_md": "Retention of message streams: `docs/airflow.md` describes each task and its failures.",
}


def _params(names: Sequence[str]) -> dict[str, Param]:
    """The form of a manually started run."""
    return {
        "streams": Param(
            [],
            type="array",
            items={"type": "string", "enum": list(names)},
            examples=list(names),
            title="Streams",
            description="Default: all",
        ),
        "as_of": Param(
            None,
            type=["null", "string"],
            title="As of",
            description="2026-11-20T00:00:00Z, 2026-11-20 or now-1d. Default: the instant of planning",
        ),
        "dry_run": Param(
            default=False,
            type="boolean",
            title="Dry run",
            description="Only plan; change nothing",
        ),
        "allow_large": _lift("Allow large", "the plan exceeds the limits of `guards`"),
        "allow_rewind": _lift("Allow rewind", "the instant is before the last applied one"),
    }


def _lift(title: str, what: str) -> Param:
    """The parameter that lifts a refusal for the chosen streams once, with a person's reason."""
    return Param(
        None,
        type=["null", "string"],
        maxLength=200,
        title=title,
        description=f"The reason to apply although {what}; recorded with the run. Choose streams, too",
    )
