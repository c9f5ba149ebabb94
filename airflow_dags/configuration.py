"""Tasks about a DAG's configuration: one fails if it cannot be read, one names streams no longer listed in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_dags.engine import Engine
from airflow_dags.running import BARE, present, say_last, skip_task
from airflow_dags.streams import CONFIGURATION


class MistakenConfiguration(BaseOperator):  # type: ignore[misc]
    """Fail with the mistake found by the parsing of the DAG file."""

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
    """The task about the configuration; without a mistake, Airflow completes it without starting a process."""
    if mistake is None:
        return EmptyOperator(task_id=CONFIGURATION)
    return MistakenConfiguration(task_id=CONFIGURATION, mistake=mistake, **options)


class UnlistedOperator(BaseOperator):  # type: ignore[misc]
    """Name the streams of the warehouse that the configuration no longer lists, according to its `unlisted`.

    A task of a stream knows only that stream, so each run checks all streams once. A run for chosen
    streams does not check the others.
    """

    template_fields: Sequence[str] = ("variables",)

    def __init__(self, *, engine: Engine, **options: Any) -> None:
        super().__init__(**options)
        self.engine = engine
        self.variables = dict(engine.variables)

    def execute(self, context: Context) -> None:
        """Check, and log the engine's sentence.

        Raises:
            AirflowSkipException: the run is for chosen streams only.
            AirflowFailException: there are such streams, and `unlisted: fail`; or the configuration is wrong.
        """
        if context["params"].get("streams"):
            skip_task(context, "this run is for chosen streams, and does not check others")
        program = present(self.engine, "retention")
        done = subprocess.run(  # noqa: S603  (words of our own)
            [program, "--config", self.engine.config, "validate"],
            env={**os.environ, **BARE, **self.variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        sentence = done.stderr.strip()
        if done.returncode:
            error = AirflowFailException(f"{sentence} (exit code {done.returncode})")
            say_last(error)
            raise error
        if sentence:
            self.log.warning("%s", sentence)
