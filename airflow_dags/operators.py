"""Operators for DAGs of one's own: each step of a stream's maintenance as a task that needs no other.

`ApproveOperator` is beside them in `airflow_dags.approve`.
"""

from __future__ import annotations

from typing import Any

from airflow_dags.engine import Engine
from airflow_dags.steps import APPLY, COMPACT, PLAN, RECLAIM
from airflow_dags.tasks import Before, JobOperator


class PlanOperator(JobOperator):
    """Plan a pass over a stream and return its counts; skipped where nothing would change."""

    def __init__(
        self, *, engine: Engine, stream: str, as_of: str | None = None, **options: Any
    ) -> None:
        """Plan.

        Args:
            engine: where the engine is.
            stream: the stream, the topic, or a bucket's stream.
            as_of: the instant, as `--as-of` takes it; None: that of planning.
            options: those of every task: `pool`, `retries`, `execution_timeout`.
        """
        before = Before({"as_of": as_of})
        super().__init__(engine=engine, stream=stream, step=PLAN, before=before, **options)


class ApplyOperator(JobOperator):
    """Apply the plan of a PlanOperator, at its instant, and return what went; skipped where nothing did.

    Where a person has to approve, an ApproveOperator comes between.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        stream: str,
        plan: str | None = None,
        approve: str | None = None,
        **options: Any,
    ) -> None:
        """Apply a plan.

        Args:
            engine: where the engine is.
            stream: the stream that was planned.
            plan: the id of the task that has planned; None: `plan` of the same group.
            approve: the id of the task that has asked; None: `approve` of the same group.
            options: those of every task; an asset in `outlets` is updated when messages went.
        """
        options = {"trigger_rule": "none_failed", **options}
        before = Before({}, plan, approve)
        super().__init__(engine=engine, stream=stream, step=APPLY, before=before, **options)


class CompactOperator(JobOperator):
    """Compact a stream with `compact` in the configuration; skipped where there is nothing to merge."""

    def __init__(self, *, engine: Engine, stream: str, **options: Any) -> None:
        """Compact; `engine`, `stream` and `options` are as of PlanOperator."""
        super().__init__(engine=engine, stream=stream, step=COMPACT, before=Before({}), **options)


class ReclaimOperator(JobOperator):
    """Delete a stream's dead files whose grace is over; skipped where none is."""

    def __init__(self, *, engine: Engine, stream: str, **options: Any) -> None:
        """Reclaim; `engine`, `stream` and `options` are as of PlanOperator."""
        super().__init__(engine=engine, stream=stream, step=RECLAIM, before=Before({}), **options)
