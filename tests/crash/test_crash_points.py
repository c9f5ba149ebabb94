"""A process is killed behind every durable step of every write path; the same command then ends as if nothing was."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from retention.storage.crash_points import CRASH_AT, STEPS_LOG, Step
from tests.support.crashes import SCENARIOS, TWICE
from tests.support.crew import WORKERS, Crew

KILLED = -9
FORMATS = ("delta", "parquet")


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    hired = Crew("tests.support.crashes", tmp_path_factory.mktemp("crashes"))
    yield hired
    hired.stop()


class Trial:
    """One scenario on one format: its before-state once, and copies of it to be killed."""

    def __init__(self, crew: Crew, name: str, format_: str) -> None:
        self.crew, self.name = crew, name
        self.base = crew.folder / f"{name}-{format_}"
        assert crew.run(do="prepare", scenario=name, folder=self.base, format=format_) == 0
        calm, self.steps = self.recorded(self.base, "calm")
        self.expected = self.outcome(calm)
        assert self.expected["orphans"] == []
        assert self.expected["unfinished"] == []
        assert self.expected.get("again", 0) == 0

    def copy(self, source: Path, name: str) -> Path:
        return Path(shutil.copytree(source, f"{source}+{name}", symlinks=True))

    def act(self, folder: Path, **env: str) -> int:
        return self.crew.run(do="act", scenario=self.name, folder=folder, env=env)

    def recorded(self, source: Path, name: str) -> tuple[Path, list[str]]:
        folder = self.copy(source, name)
        log = Path(f"{folder}.steps")
        log.touch()
        assert self.act(folder, **{STEPS_LOG: str(log)}) == 0
        return folder, points(log.read_text().split())

    def outcome(self, folder: Path) -> dict[str, Any]:
        result = Path(f"{folder}.json")
        ended = self.crew.run(do="outcome", scenario=self.name, folder=folder, result=result)
        assert ended == 0, f"{folder.name}: cannot be looked at"
        return dict(json.loads(result.read_text()))

    def killed(self, source: Path, point: str) -> Path:
        folder = self.copy(source, point)
        assert self.act(folder, **{CRASH_AT: point}) == KILLED, f"{folder.name}: was not killed"
        return folder

    def wrongs(self, crashed: Path) -> list[str]:
        """What differs from the uninterrupted run after the command was given again."""
        if self.act(crashed) != 0:
            return [f"{crashed.name}: the command fails when it is given again"]
        found = self.outcome(crashed)
        shutil.rmtree(crashed)
        return [
            f"{crashed.name}: {key} is {found[key]}, not {wanted}"
            for key, wanted in self.expected.items()
            if key != "orphans" and found[key] != wanted
        ]

    def once(self, point: str) -> list[str]:
        return self.wrongs(self.killed(self.base, point))

    def twice(self, point: str) -> list[str]:
        crashed = self.killed(self.base, point)
        calm, recovery = self.recorded(crashed, "calm")
        shutil.rmtree(calm)
        wrong = [
            wrong for second in recovery for wrong in self.wrongs(self.killed(crashed, second))
        ]
        return wrong + self.wrongs(crashed)


def points(reached: list[str]) -> list[str]:
    """Where to kill: each step's first and last time, or all times."""
    return [
        f"{step}#{number}"
        for step, count in Counter(reached).items()
        for number in sorted({1, count})
    ]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_killed_command_given_again_ends_as_if_it_had_not_been_killed(
    crew: Crew, name: str, format_: str, record_testsuite_property: Any
) -> None:
    trial = Trial(crew, name, format_)
    attempt = trial.twice if TWICE else trial.once
    with ThreadPoolExecutor(WORKERS) as pool:
        wrongs = [wrong for found in pool.map(attempt, trial.steps) for wrong in found]
    REACHED.update(point.partition("#")[0] for point in trial.steps)
    record_testsuite_property(f"crashes-{name}-{format_}", len(trial.steps))
    assert wrongs == []


REACHED: set[str] = set()


def test_every_step_is_killed_in_some_scenario(crew: Crew) -> None:
    """Runs behind the others; alone it records the scenarios by itself."""
    if not REACHED:
        for name in SCENARIOS:
            for format_ in FORMATS:
                trial = Trial(crew, name, format_)
                REACHED.update(point.partition("#")[0] for point in trial.steps)
    assert set(map(str, Step)) - REACHED == set()
