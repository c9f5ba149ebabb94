"""Spark's own metrics of its stages: times of tasks, and bytes through shuffles."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from retention.engines.spark.session import active_session

_FIGURES = {
    "tasks": "numTasks",
    "task_ms": "executorRunTime",
    "shuffle_read": "shuffleReadBytes",
    "shuffle_written": "shuffleWriteBytes",
    "spilled_to_disk": "diskBytesSpilled",
    "result_bytes": "resultSize",
}
_DETAILS = _SUMMARIES = False


def stages_of(spark: SparkSession) -> list[dict[str, Any]]:
    """The finished stages, in order: name, tasks, milliseconds and bytes."""
    context = spark.sparkContext
    gateway: Any = context._gateway  # noqa: SLF001  (what the status store answers is only to be had in the JVM)
    store = context._jsc.sc().statusStore()  # noqa: SLF001
    quantiles = gateway.new_array(gateway.jvm.double, 0)
    statuses, states = gateway.jvm.java.util.ArrayList(), gateway.jvm.java.util.ArrayList()
    listed = store.stageList(statuses, _DETAILS, _SUMMARIES, quantiles, states)
    stages = [listed.apply(at) for at in range(listed.size())]
    return [
        {"stage": stage.stageId(), "of": _description(stage)}
        | {name: getattr(stage, method)() for name, method in _FIGURES.items()}
        for stage in sorted(stages, key=lambda stage: stage.stageId())
        if stage.numCompleteTasks()
    ]


def shuffled_bytes() -> int | None:
    """Shuffle bytes written by the active session's stages so far; None: there is no session."""
    session = active_session()
    if session is None:
        return None
    return sum(stage["shuffle_written"] for stage in stages_of(session))


def _description(stage: Any) -> str:
    described = stage.description()
    return described.get() if described.isDefined() else stage.name()
