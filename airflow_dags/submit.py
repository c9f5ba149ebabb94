"""Tasks of a stream on a Spark cluster: each submits one job by Airflow's own SparkSubmitOperator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException

from airflow_dags.ending import code_of_spark
from airflow_dags.engine import Cluster, Engine
from airflow_dags.steps import Step
from airflow_dags.tasks import BARE, Before, StepTask


class SubmitOperator(StepTask, SparkSubmitOperator):  # type: ignore[misc]
    """A step by `spark-submit jobs/….py`, with the driver on Airflow's worker.

    The fields that name the stream are no templates: a name is a text, whatever stands in it.
    """

    template_fields: Sequence[str] = tuple(
        name
        for name in SparkSubmitOperator.template_fields
        if name not in ("name", "application_args")
    )
    env_vars: dict[str, str]

    def __init__(
        self,
        *,
        engine: Engine,
        cluster: Cluster,
        stream: str,
        step: Step,
        before: Before | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            application=str(Path(cluster.jobs, f"{step.job}.py")),
            conn_id=cluster.conn_id,
            name=f"retention {step.name} {stream}",
            deploy_mode="client",
            spark_binary=str(Path(engine.environment, "bin", "spark-submit")),
            env_vars={**BARE, **engine.variables},
            **options,
            **cluster.options,
        )
        self.engine, self.stream, self.step = engine, stream, step
        self.before = before or Before()

    def launch(self, arguments: list[str], variables: Mapping[str, str], context: Context) -> int:
        """Submit the job and wait for it; its exit code, as Spark hands it on."""
        self.application_args = arguments
        self.env_vars = {**variables, **self.env_vars}
        try:
            SparkSubmitOperator.execute(self, context)
        except AirflowException as error:
            return code_of_spark(error)
        return 0

    def on_kill(self) -> None:
        """End the application."""
        SparkSubmitOperator.on_kill(self)
