"""The engine's locations for tasks: its configuration, its Python environment, its reports, and a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_dags.options import check_options


@dataclass(frozen=True)
class Cluster:
    """A Spark cluster for jobs, with the driver on Airflow's worker (client mode)."""

    jobs: str
    """The folder of the engine's jobs: `/srv/lake-retention/jobs`."""
    conn_id: str = "spark_default"
    """Airflow's connection to the cluster."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of SparkSubmitOperator: `conf`, `archives`, `executor_memory`, …"""


@dataclass(frozen=True)
class Engine:
    """The engine, started by tasks in its own Python environment, separate from Airflow's."""

    config: str
    """`retention.yaml`, an absolute path, the same on schedulers, DAG processors and workers."""
    environment: str
    """The engine's Python environment: `<environment>/bin/python` runs the jobs."""
    reports: str
    """A folder shared by all workers, for the reports of tasks."""
    engine: str = "auto"
    """The jobs' `--engine`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the jobs, with templates: `{"AWS_SECRET_ACCESS_KEY": "{{ conn.lake.password }}"}`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the jobs (`airflow_dags.options.OPTIONS`): `{"wait": "10m", "log_format": "json"}`."""
    pages: str | None = None
    """The address at which browsers reach `reports`, for pages that tasks write and link; None: no pages."""
    cluster: Cluster | None = None
    """The cluster for jobs; None: `python -m retention.jobs.…` on Airflow's worker."""

    def command(self, *words: str) -> str:
        """A command of the engine on this configuration, as typed by a person."""
        return shlex.join([self.program("retention"), "--config", self.config, *words])

    def program(self, name: str) -> str:
        """The path of a program of the engine's environment."""
        return str(Path(self.environment, "bin", name))

    def __post_init__(self) -> None:
        """Refuse relative paths, an address without a scheme, and options that no job has.

        Raises:
            ValueError: names the first one.
        """
        check_options(self.options)
        for name in ("config", "environment", "reports"):
            if not Path(getattr(self, name)).is_absolute():
                raise ValueError(
                    f"{name}: {getattr(self, name)} is not an absolute path on a disk, and tasks run in folders of "
                    "their own; write one"
                )
        if self.pages is not None and "://" not in self.pages:
            raise ValueError(
                f"pages: {self.pages!r} is not an address; write where browsers reach `reports`, such as "
                "'https://lake.example.com/reports'"
            )
