"""A night of 300 streams by a full Airflow, by cron's jobs, and another DAG beside it: a measurement.

`make long NAME=airflow ARGS=tests/airflow/many.py`, some seven minutes; it prints seconds, and
asserts only that runs succeed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.test_stack import Stack, stack  # noqa: F401  (a fixture)
from tests.airflow.world import ENGINE, LONG_AGO, ROOT, World, until

STREAMS, DUE = 300, 20
CONFIGURATION = "warehouse: .\ndefaults: {grace: 0s}\nstreams:\n" + "".join(
    f"  - {{name: S-{number}, subjects: [s-{number}.>], max_age: 7d}}\n"
    for number in range(STREAMS)
)
PUBLISH = f"""
import sys
import retention
warehouse = retention.open_warehouse(sys.argv[1], engine="local")
for number in range(int(sys.argv[2])):
    warehouse.stream(f"S-{{number}}").publish([{{"subject": f"s-{{number}}.a", "data": "x", "ts_ns": {LONG_AGO}}}] * 3)
"""
OTHER = """
from airflow.sdk import DAG, task
from airflow.sdk.bases.operator import chain
with DAG("other") as dag:
    chain(*(task(lambda: None, task_id=f"t{number}")() for number in range(10)))
"""


def test_a_night_of_many_streams(
    stack: Stack,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(tmp_path / "lake")
    world.folder.mkdir()
    world.config.write_text(CONFIGURATION, encoding="utf-8")
    program(world, "-c", PUBLISH, str(world.config), str(STREAMS))
    told = {"cron": [seconds(world, lambda: by_cron(world)) for _ in range(3)]}
    stack = Stack(stack.client, world, stack.dags)
    other = stack.add_dag_file("other", OTHER)
    told["another DAG alone"] = [run(stack, other) for _ in range(3)]
    for batch in (STREAMS, STREAMS // 10):
        dag = stack.add_dag(f"night-{batch}", batch=batch)
        beside: list[float] = []
        told[f"batches of {batch}"] = [
            seconds(world, lambda dag=dag, beside=beside: with_another(stack, dag, other, beside))  # type: ignore[misc]
            for _ in range(2)
        ]
        told[f"another DAG beside batches of {batch}"] = beside
    with capsys.disabled():
        for name, measured in told.items():
            print(name, *(f"{took:.1f} s" for took in measured))


def seconds(world: World, night: Callable[[], Any]) -> float:
    """The time of a night in which some streams have messages to remove."""
    program(world, "-c", PUBLISH, str(world.config), str(DUE))
    began = time.monotonic()
    night()
    return time.monotonic() - began


def by_cron(world: World) -> None:
    """Run the jobs of a crontab."""
    for words in (("retention.jobs.retain", "--compact"), ("retention.jobs.reclaim",)):
        program(
            world, "-m", words[0], "--config", str(world.config), "--engine", "local", *words[1:]
        )


def run(stack: Stack, dag: str) -> float:  # noqa: F811
    """The time of a successful run."""
    began = time.monotonic()
    started = stack.start(dag)
    until(lambda: stack.get(started)["state"] == "success")
    return time.monotonic() - began


def with_another(stack: Stack, dag: str, other: str, beside: list[float]) -> None:  # noqa: F811
    """Run a DAG, and another one repeatedly until it ends."""
    started = stack.start(dag)
    until(lambda: stack.get(started)["state"] == "running")
    while stack.get(started)["state"] == "running":
        beside.append(run(stack, other))
    assert stack.get(started)["state"] == "success"


def program(world: World, *words: str) -> None:
    """Run a program of the engine."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    python = ENGINE / "bin" / "python"
    subprocess.run([python, *words], cwd=world.folder, env=environment, check=True)
