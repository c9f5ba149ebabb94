from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.core.units import HOUR
from retention.doctor.examine import examine
from tests.support.processes import ROOT, Started, python
from tests.support.sandboxes import lines, opened

KILLS = int(os.environ.get("RETENTION_KILLS", "0"))
"""The number of killed runs, including Spark; by default, a few local ones."""
ORDERS = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "max_msgs_per_subject": 30,
    "segment_span": "4h",
    "compact": {"min_files": 2},
}
BATCHES = 24
INSTANT = 1_760_000_000 * 10**9
"""Jobs use the machine's clock, which is later."""
RETAIN = (python(), "-m", "retention.jobs.retain")
SUBMIT = (str(Path(python()).with_name("spark-submit")), str(ROOT / "jobs" / "retain.py"))
ENDS_WITHIN_S = 30


@dataclass(frozen=True)
class Way:
    """A way to run the job, and the target of a signal."""

    command: tuple[str, ...]
    engine: str
    victim: str
    """The prefix of the target program's name."""


LOCAL = Way(RETAIN, "local", "python")
SPARK = [
    Way(RETAIN, "spark", "python"),
    Way(RETAIN, "spark", "java"),
    Way(SUBMIT, "spark", "java"),
    Way(SUBMIT, "spark", "python"),
]
WAYS = [LOCAL, *SPARK] if KILLS else [LOCAL]
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]


@cache
def base(folder: Path, form: str) -> Path:
    """A stream that loses half of its messages from the middle of files, with mergeable remains."""
    made = folder / f"base-{form}"
    stream = opened(made, ORDERS, now_ns=INSTANT, format=form).stream("ORDERS")
    for batch in range(BATCHES):
        stream.publish(
            lines(20, f"orders.{batch % 4}", first_ns=INSTANT - (BATCHES - batch) * HOUR)
        )
    return made


@cache
def undisturbed(
    folder: Path, form: str, command: Sequence[str], engine: str
) -> tuple[list[dict[str, object]], float]:
    """The messages kept by an undisturbed run, and its duration in seconds."""
    place = shutil.copytree(base(folder, form), folder / f"{form}-{engine}-{len(command)}")
    began = time.monotonic()
    code, said = started(place, command, engine).end()
    assert code == 0, said
    return messages(place), time.monotonic() - began


def started(place: Path, command: Sequence[str], engine: str) -> Started:
    options = ["--engine", engine, "--compact", "--as-of", str(INSTANT)]
    return Started([*command, *options, "--config", str(place / "retention.yaml")], place)


def messages(place: Path) -> list[dict[str, object]]:
    stream = open_warehouse(place / "retention.yaml").stream("ORDERS")
    columns = ("seq", "subject", "payload")
    return [row for table in stream.messages() for row in table.select(columns).to_pylist()]


def problems(place: Path) -> list[str]:
    found = examine(lambda: open_warehouse(place / "retention.yaml"))
    return [finding.detail for finding in found if finding.result == "problem"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(KILLS or 2))
def test_a_run_that_is_killed_at_any_moment_leaves_a_valid_stream_and_nobody_behind(
    folder: Path, number: int
) -> None:
    random_moment = random.Random(number)
    form, way = ("delta", "parquet")[number % 2], WAYS[number // 2 % len(WAYS)]
    wanted = SIGNALS[number // 2 % len(SIGNALS)]
    before = messages(base(folder, form))
    after, seconds = undisturbed(folder, form, way.command, way.engine)
    assert len(after) < len(before)
    place = shutil.copytree(base(folder, form), folder / f"killed-{number}")
    run = started(place, way.command, way.engine)
    time.sleep(random_moment.uniform(0.05, seconds * 1.1))
    met = run.send(wanted, way.victim)
    code, said = run.end()
    assert run.left_behind(ENDS_WITHIN_S) == []
    assert messages(place) in (before, after)
    assert problems(place) == []
    again, text = started(place, LOCAL.command, LOCAL.engine).end()
    assert again == 0, text
    assert messages(place) == after
    assert problems(place) == []
    who = f"{Path(way.command[0]).name} on {way.engine}, {wanted.name} to {way.victim}"
    print(f"\n{number}, {form}: {who}: {'met' if met else 'missed'}, {code}: {said.strip()[-120:]}")
    shutil.rmtree(place)
