"""Tasks on a Spark cluster: each submits one job with Airflow's SparkSubmitOperator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException

from airflow_dags.batch_tasks import BatchTask
from airflow_dags.batches import Batch
from airflow_dags.ending import code_of_spark
from airflow_dags.engine import Cluster, Engine
from airflow_dags.links import links_of
from airflow_dags.running import BARE, Launcher
from airflow_dags.steps import Counts, Step
from airflow_dags.tasks import Before, StepTask


class SparkOperator(Launcher, SparkSubmitOperator):  # type: ignore[misc]
    """A job by `spark-submit jobs/….py`, with the driver on Airflow's worker.

    The fields with stream names are not templates, because a name may be any text.
    """

    template_fields: Sequence[str] = tuple(
        name
        for name in SparkSubmitOperator.template_fields
        if name not in ("name", "application_args")
    )
    env_vars: dict[str, str]

    def __init__(
        self, *, engine: Engine, cluster: Cluster, step: Step, name: str, **options: Any
    ) -> None:
        super().__init__(
            application=str(Path(cluster.jobs, f"{step.job}.py")),
            conn_id=cluster.conn_id,
            name=f"retention {step.name} {name}".strip(),
            deploy_mode="client",
            spark_binary=engine.program("spark-submit"),
            env_vars={**BARE, **engine.variables},
            **options,
            **cluster.options,
        )
        self.engine, self.step = engine, step
        self.operator_extra_links = links_of(engine, step)

    def launch(self, arguments: list[str], variables: Mapping[str, str], context: Context) -> int:
        """Submit the job and wait for it; returns its exit code, as passed on by Spark."""
        self.application_args = arguments
        self.env_vars = {**variables, **self.env_vars}
        try:
            SparkSubmitOperator.execute(self, context)
        except AirflowException as error:
            return code_of_spark(error)
        return 0

    def on_kill(self) -> None:
        """Terminate the application."""
        SparkSubmitOperator.on_kill(self)


class SubmitOperator(StepTask, SparkOperator):
    """A step of one stream on a cluster."""

    template_fields: Sequence[str] = (*SparkOperator.template_fields, "planned")

    def __init__(
        self,
        *,
        stream: str = "",
        planned: Counts | None = None,
        before: Before | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name=stream, **options)
        self.named, self.planned = stream, planned
        self.before = before or Before()


class SubmitBatchOperator(BatchTask, SparkOperator):
    """A step of a batch on a cluster."""

    def __init__(self, *, batch: Batch, **options: Any) -> None:
        super().__init__(name=batch.id, **options)
        self.batch = batch
