"""Operators for custom DAGs: each step of a stream's maintenance as an independent task.

`ApproveOperator` is in `airflow_dags.approve`.
"""

from __future__ import annotations

from typing import Any

from airflow_dags.engine import Engine
from airflow_dags.steps import APPLY, COMPACT, PLAN, RECLAIM, SYNC, verify_step
from airflow_dags.tasks import Before, JobOperator


class SyncOperator(JobOperator):
    """Copy the new messages of a stream with `sync` in the configuration from its live server; never skipped."""

    def __init__(self, *, engine: Engine, stream: str, **options: Any) -> None:
        """Sync; `engine`, `stream` and `options` as for PlanOperator."""
        super().__init__(engine=engine, stream=stream, step=SYNC, before=Before({}), **options)


class PlanOperator(JobOperator):
    """Plan a pass over a stream and return its counts; skipped if nothing would change."""

    def __init__(
        self, *, engine: Engine, stream: str, as_of: str | None = None, **options: Any
    ) -> None:
        """Plan.

        Args:
            engine: the location of the engine.
            stream: the stream, the topic, or a bucket's stream.
            as_of: the instant, in the format of `--as-of`; None: that of planning.
            options: options of every task: `pool`, `retries`, `execution_timeout`.
        """
        before = Before({"as_of": as_of})
        super().__init__(engine=engine, stream=stream, step=PLAN, before=before, **options)


class ApplyOperator(JobOperator):
    """Apply the plan of a PlanOperator, at its instant, and return the counts of removals; skipped if there were none.

    If a person must approve, an ApproveOperator comes between them.
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
            engine: the location of the engine.
            stream: the planned stream.
            plan: the id of the planning task; None: `plan` of the same group.
            approve: the id of the approval task; None: `approve` of the same group.
            options: options of every task; an asset in `outlets` is updated after removals.
        """
        options = {"trigger_rule": "none_failed", **options}
        before = Before({}, plan, approve)
        super().__init__(engine=engine, stream=stream, step=APPLY, before=before, **options)


class CompactOperator(JobOperator):
    """Compact a stream with `compact` in the configuration; skipped if there is nothing to merge."""

    def __init__(self, *, engine: Engine, stream: str, **options: Any) -> None:
        """Compact; `engine`, `stream` and `options` as for PlanOperator."""
        super().__init__(engine=engine, stream=stream, step=COMPACT, before=Before({}), **options)


class ReclaimOperator(JobOperator):
    """Delete a stream's dead files after their grace; skipped if there are none."""

    def __init__(self, *, engine: Engine, stream: str, **options: Any) -> None:
        """Reclaim; `engine`, `stream` and `options` as for PlanOperator."""
        super().__init__(engine=engine, stream=stream, step=RECLAIM, before=Before({}), **options)


class VerifyOperator(JobOperator):
    """Verify a share of a stream's files, and all of its records; fails with the first damage (6)."""

    def __init__(self, *, engine: Engine, stream: str, share: str = "100%", **options: Any) -> None:
        """Verify.

        Args:
            engine: the location of the engine.
            stream: the stream or topic, a bucket's stream, or a table in place.
            share: the share of the files whose bytes are read, in the format of `--sample`.
            options: options of every task, as for PlanOperator.
        """
        step, before = verify_step(share), Before({})
        super().__init__(engine=engine, stream=stream, step=step, before=before, **options)
