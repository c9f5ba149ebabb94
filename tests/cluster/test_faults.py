"""Faults on a cluster: the result is still right, or there is one sentence and the old state."""

from __future__ import annotations

import os
import signal
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from retention.core.units import DAY
from tests.support.cluster import Brought, Cluster, children, parent, until, worker_python
from tests.support.sandboxes import NOW, lines, opened

pytestmark = pytest.mark.cluster

LEFT = [*range(18, 25), *range(42, 49)]
NOTHING = Brought((), "python3")
_HELD_BACK = """\
import builtins, os, pathlib, sys, time
import_as_ever, folder = builtins.__import__, pathlib.Path({folder!r})

def importing(*given, **named):
    module = import_as_ever(*given, **named)
    rewrite = sys.modules.get("retention.datafile.rewrite")
    act = getattr(rewrite, "copy_remaining", None)
    if act is not None and not hasattr(rewrite, "is_held_back"):
        rewrite.is_held_back = True
        def copy(task):
            done = act(task)
            try:
                os.symlink(str(os.getpid()), folder / "first")
            except FileExistsError:
                return done
            while not (folder / "go").exists():
                time.sleep(0.05)
            return done
        rewrite.copy_remaining = copy
    return module

builtins.__import__ = importing
"""
_OTHER_VERSION = """\
import sys
import pyspark.worker_util as util

class Other:
    version_info = (3, 10, 1)
    def __getattr__(self, name):
        return getattr(sys, name)

util.sys = Other()
"""


@pytest.fixture(params=["delta", "parquet"])
def name(request: pytest.FixtureRequest) -> str:
    """The format of the stream ORDERS."""
    return str(request.param)


def stream(name: str) -> dict[str, object]:
    return {
        "name": "ORDERS",
        "format": name,
        "subjects": ["orders.>"],
        "max_msgs_per_subject": 7,
        "segment_span": "1d",
    }


def two_segments(folder: Path, name: str) -> tuple[object, ...]:
    """A stream of two segments; a pass keeps the last seven messages of each. Returns the job's arguments."""
    orders = opened(folder / "w", stream(name)).stream("ORDERS")
    for number in range(2):
        first_ns = NOW - (10 - number) * DAY
        orders.publish(lines(24, f"orders.{number}", first_ns))
    return "--config", folder / "w" / "retention.yaml"


def left(folder: Path, name: str) -> list[int]:
    tables = opened(folder / "w", stream(name)).stream("ORDERS").messages()
    return [seq for rows in tables for seq in rows["seq"].to_pylist()]


def python_with(folder: Path, code: str) -> Path:
    """A Python of the workers that first runs some code."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(code, encoding="utf-8")
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={folder}/site:$PYTHONPATH exec {worker_python()} "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def held_back(folder: Path, brought: Brought) -> Brought:
    """Workers in which the first to copy a file waits before it reports."""
    return replace(brought, python=python_with(folder, _HELD_BACK.format(folder=str(folder))))


def first_copier(folder: Path) -> int:
    """The waiting process that has copied a file."""
    first = folder / "first"
    until(first.is_symlink)
    return int(first.readlink().name)


def refused(done: subprocess.CompletedProcess[str], code: int, sentence: str) -> None:
    """Whether a job ended with one sentence; `spark-submit` merges a job's output streams."""
    assert done.returncode == code, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("retain: ORDERS")]
    assert len(said) == 1, done.stdout
    assert sentence in said[0]
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        (
            "lacking",
            "workers' Python does not have this package (retention); set PYSPARK_PYTHON to",
        ),
        ("other", "the workers run Python 3.10, the driver runs 3."),
        (
            "./environment/bin/python",
            "the workers cannot start the Python ./environment/bin/python",
        ),
    ],
)
def test_a_python_that_cannot_run_tasks_is_one_sentence(
    cluster: Cluster, folder: Path, python: str, sentence: str
) -> None:
    arguments = two_segments(folder, "delta")
    pythons = {"lacking": worker_python(), "other": folder / "python"}
    if python == "other":
        python_with(folder, _OTHER_VERSION)
    brought = replace(NOTHING, python=pythons.get(python, python))
    refused(cluster.submit(brought, "retain", *arguments), 2, sentence)
    assert left(folder, "delta") == list(range(1, 49))


@pytest.mark.parametrize("is_there", [True, False], ids=["changed module", "missing module"])
def test_a_worker_with_another_version_is_one_sentence(
    cluster: Cluster, folder: Path, by_zip: Brought, is_there: bool
) -> None:
    """For example an environment of the workers created last month."""
    arguments = two_segments(folder, "delta")
    program = python_with(folder, "")
    with zipfile.ZipFile(str(by_zip.options[1])) as packed:
        packed.extractall(folder / "site")
    module = folder / "site" / "retention" / "engines" / "spark" / "task_code.py"
    changed = module.read_text(encoding="utf-8") + "# of last month\n"
    module.unlink()
    if is_there:
        module.write_text(changed, encoding="utf-8")
    brought = Brought((), program)
    sentence = "have another version of this package than the driver"
    refused(cluster.submit(brought, "retain", *arguments), 2, f"the workers {sentence} (")
    assert left(folder, "delta") == list(range(1, 49))
    found = cluster.submit(brought, "doctor", *arguments)
    assert found.returncode == 4, found.stdout
    assert sentence in found.stdout


def test_a_debugged_job_shows_where_an_error_came_from(cluster: Cluster, folder: Path) -> None:
    arguments = two_segments(folder, "parquet")
    brought = replace(NOTHING, python=worker_python())
    done = cluster.submit(brought, "retain", *arguments, "--debug")
    assert done.returncode == 2
    assert "ModuleNotFoundError: No module named 'retention'" in done.stdout
    assert "Traceback (most recent call last)" in done.stdout


def test_a_worker_killed_behind_its_copy_is_made_up_for(
    cluster: Cluster, folder: Path, by_zip: Brought, name: str
) -> None:
    arguments = two_segments(folder, name)
    brought = held_back(folder, by_zip)
    words = cluster.command(brought, "retain", *arguments)
    with subprocess.Popen(
        words,
        cwd=folder,
        env=cluster.environment(PYSPARK_PYTHON=brought.python),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as job:
        copier = first_copier(folder)
        cluster.kill_worker(parent(parent(copier)))
        cluster.add_workers(1)
        (folder / "go").touch()
        said, _ = job.communicate()
    assert job.returncode == 0, said
    assert left(folder, name) == LEFT


def test_a_killed_driver_leaves_the_old_state_and_nobody_behind(
    cluster: Cluster, folder: Path, by_zip: Brought, name: str
) -> None:
    arguments = two_segments(folder, name)
    brought = held_back(folder, by_zip)
    words = cluster.command(brought, "retain", *arguments)
    environment = cluster.environment(PYSPARK_PYTHON=brought.python)
    with (folder / "said").open("w") as sink:
        job = subprocess.Popen(words, cwd=folder, env=environment, stdout=sink, stderr=sink)
    first_copier(folder)
    drivers = children(job.pid)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    until(lambda: not any(Path(f"/proc/{driver}").exists() for driver in drivers))
    assert left(folder, name) == list(range(1, 49))
    (folder / "go").touch()
    done = cluster.submit(brought, "retain", *arguments)
    assert done.returncode == 0, done.stdout
    assert left(folder, name) == LEFT


def test_of_a_straggler_and_its_double_one_counts(
    cluster: Cluster, folder: Path, by_zip: Brought, name: str
) -> None:
    """The first process to copy a file never reports."""
    arguments = two_segments(folder, name)
    done = cluster.submit(
        held_back(folder, by_zip),
        "retain",
        *arguments,
        speculation="true",
        speculation_interval="100ms",
        speculation_quantile="0.5",
        speculation_minTaskRuntime="1s",
    )
    assert done.returncode == 0, done.stdout
    assert left(folder, name) == LEFT


@pytest.mark.parametrize(
    "settings", [{"driver_maxResultSize": "4m"}, {"driver_memory": "512m"}], ids=["4m", "512m"]
)
def test_little_room_in_the_driver_is_enough_or_is_said(
    cluster: Cluster, folder: Path, by_zip: Brought, settings: dict[str, str]
) -> None:
    """Every other message is removed, which makes 150,000 ranges."""
    limits = stream("delta") | {"max_msgs_per_subject": 1, "segment_span": "10d"}
    orders = opened(folder / "w", limits).stream("ORDERS")
    messages = [
        f'{{"subject": "orders.{number if number % 2 else 0}", "data": "x", "ts_ns": {NOW - DAY + number}}}'
        for number in range(300_000)
    ]
    orders.publish(messages)
    config = ("--config", folder / "w" / "retention.yaml")
    done = cluster.submit(by_zip, "retain", *config, **settings)
    seqs = [seq for rows in orders.messages() for seq in rows["seq"].to_pylist()]
    if done.returncode:
        refused(done, 2, "spark.driver")
        assert len(seqs) == 300_000
    else:
        assert len(seqs) == 150_001
