"""A process is killed after every durable step of every write path; repeating the command gives the normal result."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from retention.storage.crash_points import CRASH_AT, Step
from tests.support.crashes import SCENARIOS, TWICE
from tests.support.crew import WORKERS, Crew

Reached = tuple[str, list[str]]
"""A step, and the engine's functions on the call stack, innermost first."""
NEAR = 3
"""The stack depth that distinguishes paths to a step in `make test`; outer callers do not affect the leftovers."""
KILLED = -9
FORMATS = ("delta", "parquet")
COMMITS = {Step.DELTA_COMMITTING, Step.DELTA_COMMITTED, Step.ENTRY_LINKED, Step.FILE_MOVED}
"""Steps at which every scenario is killed, because leftovers depend on its data, not on the code path."""
KILLED_AT: set[tuple[str, str]] = set()
"""A step with the innermost code path to it, on any format."""


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    hired = Crew("tests.support.crashes", tmp_path_factory.mktemp("crashes"))
    yield hired
    hired.stop()


class Trial:
    """One scenario on one format: its initial state, and copies of it for kills."""

    def __init__(self, crew: Crew, name: str, format_: str) -> None:
        self.crew, self.name = crew, name
        self.base = crew.folder / f"{name}-{format_}"
        assert crew.run(do="prepare", scenario=name, folder=self.base, format=format_) == 0
        calm, self.steps = self.recorded(self.base, "calm")
        expected = self.outcome(calm)
        assert expected is not None
        self.expected = expected
        self.recoveries: set[str] = set()
        assert self.expected["orphans"] == []
        assert self.expected["unfinished"] == []
        assert self.expected.get("again", 0) == 0

    def copy(self, source: Path, name: str) -> Path:
        return Path(shutil.copytree(source, f"{source}+{name}", symlinks=True))

    def act(self, folder: Path, **env: str) -> int:
        return self.crew.run(do="act", scenario=self.name, folder=folder, env=env)

    def recorded(self, source: Path, name: str) -> tuple[Path, list[Reached]]:
        folder = self.copy(source, name)
        log = Path(f"{folder}.steps")
        assert self.crew.run(do="record", scenario=self.name, folder=folder, log=log) == 0
        return folder, [json.loads(line) for line in log.read_text().splitlines()]

    def outcome(self, folder: Path, do: str = "outcome") -> dict[str, Any] | None:
        """The resulting state; None if it cannot be read, or if a preceding act fails."""
        result = Path(f"{folder}.json")
        ended = self.crew.run(do=do, scenario=self.name, folder=folder, result=result)
        return None if ended else dict(json.loads(result.read_text()))

    def killed(self, source: Path, point: str) -> Path:
        folder = self.copy(source, point)
        assert self.act(folder, **{CRASH_AT: point}) == KILLED, f"{folder.name}: was not killed"
        return folder

    def wrongs(self, crashed: Path) -> list[str]:
        """The differences from the uninterrupted run after a repetition of the command."""
        found = self.outcome(crashed, "recover")
        if found is None:
            return [f"{crashed.name}: the command fails when it is given again"]
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
            wrong
            for second in self.untried(recovery)
            for wrong in self.wrongs(self.killed(crashed, second))
        ]
        return wrong + self.wrongs(crashed)

    def untried(self, recovery: list[Reached]) -> list[str]:
        """The points of a recovery, unless an earlier one took the same steps by the same functions in order."""
        way = json.dumps(recovery)
        if way in self.recoveries:
            return []
        self.recoveries.add(way)
        return points(recovery)


def points(reached: Sequence[Reached]) -> list[str]:
    """The points to kill at: the first and last occurrence of each step."""
    counts = Counter(step for step, _ in reached)
    return [f"{step}#{n}" for step, count in counts.items() for n in sorted({1, count})]


def untried(reached: Sequence[Reached]) -> list[str]:
    """The commits among these points, and points not reached before by the same innermost functions."""
    counts: Counter[str] = Counter()
    paths: dict[str, tuple[str, str]] = {}
    for step, path in reached:
        counts[step] += 1
        paths[f"{step}#{counts[step]}"] = (step, " ".join(path[:NEAR]))
    chosen = []
    for point in points(reached):
        if paths[point] not in KILLED_AT or paths[point][0] in COMMITS:
            KILLED_AT.add(paths[point])
            chosen.append(point)
    return chosen


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_killed_command_given_again_ends_as_if_it_had_not_been_killed(
    crew: Crew, name: str, format_: str, record_testsuite_property: Any
) -> None:
    """`make long NAME=crash` kills at every point, and each recovery at each of its own points.

    `make test` kills at new points on any format, and at every commit.
    """
    trial = Trial(crew, name, format_)
    attempt = trial.twice if TWICE else trial.once
    chosen = points(trial.steps) if TWICE else untried(trial.steps)
    with ThreadPoolExecutor(WORKERS) as pool:
        wrongs = [wrong for found in pool.map(attempt, chosen) for wrong in found]
    REACHED.update(step for step, _ in trial.steps)
    record_testsuite_property(f"crashes-{name}-{format_}", len(chosen))
    assert wrongs == []


REACHED: set[str] = set()
OF_TABLES = {
    Step.HOLD_NAMED,
    Step.CHANGES_WRITTEN,
    Step.CHANGES_NOTED,
    Step.CHANGES_ERASED,
    Step.EVIDENCE_HASHED,
    Step.EVIDENCE_NOTED,
    Step.TABLE_COMMITTING,
    Step.TABLE_COMMITTED,
    Step.REMOVED_FILE_LINKED,
}
"""Steps that only tables in place reach: `test_tables.py` and `tests/erasure/test_erase_tables.py` kill at them."""
OF_ARCHIVES = {Step.COPIES_FORGOTTEN, Step.MANIFESTS_DELETED, Step.COPIES_DELETED}
"""Steps of `archive_keep`: `tests/retention/apply/test_archived.py` stops at them."""


@pytest.mark.thorough
def test_every_step_is_killed_in_some_scenario(crew: Crew) -> None:
    """Runs after the others; alone, it records the scenarios itself."""
    if not REACHED:
        for name in SCENARIOS:
            for format_ in FORMATS:
                trial = Trial(crew, name, format_)
                REACHED.update(step for step, _ in trial.steps)
    assert sorted(set(map(str, Step)) - REACHED - OF_TABLES - OF_ARCHIVES) == []
