"""A month of nights of forty streams by Airflow, under a manual clock.

`make long NAME=airflow ARGS=tests/airflow/month.py` takes some forty minutes. With
`RETENTION_EARLIER`, the folder of a clone of an earlier release, that release has the first nights.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.year.clock import compiled
from tests.airflow.slow import engines
from tests.airflow.test_runs import answering, approve, client, reject  # noqa: F401  (a fixture)
from tests.airflow.world import ENGINE, ROOT, World, until

NIGHTS = 30
UPGRADE = 3
"""The first night of this release, if an earlier release is given."""
KILLS = (9, 13, 19, 26)
"""Nights in which the first try of every pass is killed."""
ASKED, ANSWERED = 14, 17
"""The night with an unanswered question about `WAITS-0`, and the night before which it is answered."""
FULL_DISK, BROKEN, REJECTED = 20, 22, 24
EARLIER = os.environ.get("RETENTION_EARLIER")

DAY = 86_400 * 10**9
BEGAN = 23_148 * DAY
"""The first midnight, in May 2033, because the clock can only be set forward."""
EVENING = 20 * 3600 * 10**9
NIGHT = (2 * 3600 + 17 * 60) * 10**9
DISK_BYTES = 192 << 20

CONFIGURATION = """\
warehouse: .
defaults: {grace: 2d}
streams:
"""
AGE_DAYS = 7
RULES = {
    "AGES": (28, f"max_age: {AGE_DAYS}d, compact: {{min_files: 4}}"),
    "LAST": (4, "max_msgs: 20"),
    "KEYS": (4, "max_msgs_per_subject: 1, compact: {min_files: 4}"),
    "WAITS": (4, f"max_age: {AGE_DAYS}d, approve: true"),
}
"""Prefix of the names → the number of streams, and their settings."""
NAMES = [f"{kind}-{index}" for kind, (count, _) in RULES.items() for index in range(count)]
SUBJECTS = 3
"""Subjects of each stream; each gets a message every evening."""

SET_CLOCK = "import sys; from benchmarks.year.clock import set_clock; set_clock(int(sys.argv[1]))"
PUBLISH = """
import sys
import retention
warehouse = retention.open_warehouse(sys.argv[1], engine="local")
for name in warehouse.streams():
    lines = [{"subject": f"{name.lower()}.{number}", "data": "x"} for number in range(int(sys.argv[2]))]
    warehouse.stream(name).publish(lines)
"""
LOOK = """
import json, sys
import retention
warehouse = retention.open_warehouse(sys.argv[1], engine="local")
told = {}
for name in warehouse.streams():
    parts = warehouse.stream(name).messages()
    told[name] = sorted(seq for part in parts for seq in part["seq"].to_pylist())
print(json.dumps(told))
"""


class MountedWorld(World):
    """A world on a disk of its own; the tasks' reports are on another one."""

    @property
    def reports(self) -> Path:
        """The folder of the tasks' reports."""
        return self.folder.parent / "reports"


@dataclass
class Lake:
    """Forty streams on their own disk, a model of their expected messages, and the DAG that maintains them."""

    world: World
    dags: Path
    client: Any
    published: int = 0
    """The number of evenings so far."""
    model: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in NAMES})
    """The expected sequences of each stream."""
    release: Path = Path(EARLIER or ROOT)
    nights: list[Night] = field(default_factory=list)

    def configure(self) -> None:
        """Write the configuration."""
        lines = [
            f"  - {{name: {kind}-{index}, subjects: [{kind.lower()}-{index}.>], {settings}}}\n"
            for kind, (count, settings) in RULES.items()
            for index in range(count)
        ]
        self.world.config.write_text(CONFIGURATION + "".join(lines), encoding="utf-8")

    def evening(self) -> None:
        """Publish a message of each subject to each stream."""
        self.set_clock(BEGAN + self.published * DAY + EVENING)
        self.program(PUBLISH, str(self.world.config), str(SUBJECTS), release=self.release)
        for seqs in self.model.values():
            first = self.published * SUBJECTS + 1
            seqs.extend(range(first, first + SUBJECTS))
        self.published += 1

    def set_clock(self, instant_ns: int) -> None:
        """Set the clock of all processes started from now on."""
        self.program(SET_CLOCK, str(instant_ns))

    def night_begins(self) -> None:
        """Set the clock to the next night."""
        self.set_clock(BEGAN + self.published * DAY + NIGHT)

    def program(self, text: str, *arguments: str, release: Path = ROOT) -> str:
        """The output of a successful program of the engine."""
        done = subprocess.run(
            [ENGINE / "bin" / "python", "-c", text, *arguments],
            env=os.environ | {"PYTHONPATH": f"{release}:{ROOT}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> Night:
        """Start a run of the DAG."""
        batch = None if self.release != ROOT else 10
        file = self.world.write_dag_file(self.dags, batch=batch, release=self.release)
        result = self.world.folder.parent / f"night-{self.published}.json"
        log = result.with_suffix(".log").open("w")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.airflow.night", file, result],
                env=os.environ
                | {"PYTHONPATH": f"{self.dags}:{ROOT}", "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO"},
                cwd=result.parent,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.nights.append(Night(process, result))
        return self.nights[-1]

    def run(self, answer: Callable[[str], str | None] = approve) -> Night:
        """Run the DAG to its end, with answers of a person."""
        with answering(self.client, answer):
            night = self.start()
            assert night.process.wait() == 0, night.log()
        return night

    def goes(self, *, without: tuple[str, ...] = (), night: int | None = None) -> None:
        """Apply the rules of a night to the model: by default of the last night, to all streams."""
        for name in NAMES:
            if name not in without:
                self.model[name] = list(_left(name, self.model[name], night or self.published))

    def messages(self) -> dict[str, list[int]]:
        """The stored sequences."""
        told: dict[str, list[int]] = json.loads(self.program(LOOK, str(self.world.config)))
        return told


@dataclass(frozen=True)
class Night:
    """A run of the DAG, in its own process."""

    process: subprocess.Popen[bytes]
    result: Path

    def log(self) -> str:
        """The whole log."""
        return self.result.with_suffix(".log").read_text(encoding="utf-8")

    @property
    def ended(self) -> dict[str, Any]:
        """The result of the run, and of its tasks."""
        told: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        return told

    def failed(self) -> list[str]:
        """The tasks that failed on their own."""
        return [
            f"{task['task']} {task['stream'] or ''}".strip()
            for task in self.ended["tasks"]
            if task["state"] == "failed"
        ]

    def assert_went_well(self) -> None:
        """Assert that nothing failed."""
        assert (self.ended["state"], self.failed()) == ("success", []), self.log()


def _left(name: str, seqs: list[int], night: int) -> Iterator[int]:
    """The sequences kept by a stream's rule in a night."""
    kind = name.partition("-")[0]
    for index, seq in enumerate(seqs):
        evening = (seq - 1) // SUBJECTS
        if kind in ("AGES", "WAITS"):
            stays = night - evening <= AGE_DAYS
        elif kind == "LAST":
            stays = index >= len(seqs) - 20
        else:
            stays = seq > seqs[-1] - SUBJECTS
        if stays:
            yield seq


@pytest.fixture
def lake(
    home: Path,
    tmp_path: Path,
    client: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lake]:
    """A lake on its own small disk, before the first evening."""
    folder = tmp_path / "lake"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root can mount a disk that gets full")
    monkeypatch.setenv("LD_PRELOAD", compiled(tmp_path)["LD_PRELOAD"])
    monkeypatch.setenv("MANUAL_CLOCK", str(tmp_path / "clock"))
    lake = Lake(MountedWorld(folder), home / "dags", client)
    lake.configure()
    try:
        yield lake
    finally:
        for night in lake.nights:
            night.process.kill()
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def killing(lake: Lake) -> Iterator[list[int]]:
    """Kill the first try of every pass at a random moment; yields the killed processes."""
    killed: list[int] = []
    ended = threading.Event()
    moments = random.Random(lake.published)

    def kill_all() -> None:
        seen: set[int] = set()
        while not ended.wait(0.02):
            for process in engines(".1.json", job="retain").keys() - seen:
                seen.add(process)
                time.sleep(moments.uniform(0, 1.5))
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)

    thread = threading.Thread(target=kill_all, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def ordinary(lake: Lake) -> None:
    lake.run().assert_went_well()
    lake.goes()


def killed_once(lake: Lake) -> None:
    with killing(lake) as killed:
        lake.run().assert_went_well()
    assert killed
    lake.goes()


def silent_about_one(asked: str) -> str | None:
    """The answer of a person who approves everything except `WAITS-0`, whose question stays open."""
    return None if "WAITS-0" in asked else approve(asked)


def with_an_open_question(lake: Lake) -> Night:
    """A night without an answer about `WAITS-0`, so that its run continues."""
    lake.goes(without=("WAITS-0",))
    with answering(lake.client, silent_about_one):
        night = lake.start()
        until(lambda: lake.messages() == lake.model, seconds=600)
    assert night.process.poll() is None, night.log()
    return night


def while_a_question_is_open(lake: Lake) -> None:
    night = lake.run(silent_about_one)
    night.assert_went_well()
    assert "already asks about this stream; answer that" in night.log()
    lake.goes(without=("WAITS-0",))


def answer_late(lake: Lake, night: Night) -> None:
    """Check that the approved messages are removed, and none that have become due since."""
    with answering(lake.client, approve):
        assert night.process.wait() == 0, night.log()
    night.assert_went_well()
    lake.goes(without=tuple(name for name in NAMES if name != "WAITS-0"), night=ASKED)


def on_a_full_disk(lake: Lake) -> None:
    ballast = lake.world.folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    night = lake.run()
    ballast.unlink()
    assert night.ended["state"] == "failed"
    assert "No space left on device" in night.log()
    stored = lake.messages()
    for name in NAMES:
        # A pass may have found the pages that another one gave back.
        left = list(_left(name, lake.model[name], lake.published))
        if stored[name] == left:
            lake.model[name] = left


def with_a_broken_configuration(lake: Lake) -> None:
    lake.world.config.write_text("streams: [", encoding="utf-8")
    night = lake.run()
    assert (night.ended["state"], night.failed()) == ("failed", ["configuration"])
    lake.configure()


def with_a_rejected_plan(lake: Lake) -> None:
    night = lake.run(lambda asked: (reject if "WAITS-1" in asked else approve)(asked))
    night.assert_went_well()
    assert "has rejected the plan; the stream is kept as it is" in night.log()
    lake.goes(without=("WAITS-1",))


SPECIAL = {
    **dict.fromkeys(KILLS, killed_once),
    **dict.fromkeys(range(ASKED + 1, ANSWERED), while_a_question_is_open),
    FULL_DISK: on_a_full_disk,
    BROKEN: with_a_broken_configuration,
    REJECTED: with_a_rejected_plan,
}


def test_a_month_of_nights_leaves_what_the_rules_leave(lake: Lake) -> None:
    waiting: Night | None = None
    for night in range(1, NIGHTS + 1):
        lake.evening()
        lake.night_begins()
        if night == UPGRADE:
            lake.release = ROOT
        if night == ASKED:
            waiting = with_an_open_question(lake)
        else:
            if night == ANSWERED and waiting is not None:
                answer_late(lake, waiting)
            SPECIAL.get(night, ordinary)(lake)
        assert lake.messages() == lake.model, f"night {night}"
    lake.world.command("doctor")
    removed = dict.fromkeys(NAMES, 0)
    for run in json.loads(lake.world.command("--format", "json", "history")):
        removed[run["stream"]] += run["removed_messages"]
    assert removed == {name: NIGHTS * SUBJECTS - len(lake.model[name]) for name in NAMES}
