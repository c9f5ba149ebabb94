"""The first task of a DAG, which fails where its configuration cannot be read or lacks a stream, with the sentence."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

TASK = "configuration"


class MistakenConfiguration(BaseOperator):  # type: ignore[misc]
    """Fail with the mistake that was found when the DAG file was read."""

    def __init__(self, *, mistake: str, **options: Any) -> None:
        super().__init__(**options)
        self.mistake = mistake

    def execute(self, context: Context) -> None:
        """Fail.

        Raises:
            AirflowFailException: always, with the mistake.
        """
        raise AirflowFailException(self.mistake)


def configuration_task(mistake: str | None, **options: Any) -> BaseOperator:
    """The task; without a mistake it is one that Airflow passes without starting a process."""
    if mistake is None:
        return EmptyOperator(task_id=TASK)
    return MistakenConfiguration(task_id=TASK, mistake=mistake, **options)
