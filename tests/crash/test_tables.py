"""A run on a table in place is killed after every step; repeating it gives the normal result."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from retention.storage.crash_points import CRASH_AT
from tests.support.crashes import TWICE
from tests.support.crew import WORKERS, Crew
from tests.support.table_crashes import ACTS, RESTORED

KILLED = -9


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    hired = Crew("tests.support.table_crashes", tmp_path_factory.mktemp("crashes"))
    yield hired
    hired.stop()


@pytest.mark.parametrize("kind", ["copies", "vectors", "directory"])
@pytest.mark.parametrize("act", ACTS)
def test_a_killed_run_given_again_ends_as_if_it_had_not_been_killed(
    crew: Crew, act: str, kind: str
) -> None:
    base = crew.folder / f"{act}-{kind}"
    base.mkdir()
    assert crew.run(do="prepare", act=act, folder=base, kind=kind) == 0
    calm, points = _recorded(crew, act, base)
    expected = _outcome(crew, "outcome", act, calm)
    assert expected["unfinished"] == []

    def wrong(killed: Path) -> list[str]:
        found = _outcome(crew, "recover", act, killed)
        return [] if found == expected else [f"{killed.name}: {found}"]

    def wrongs(point: str) -> list[str]:
        killed = _killed(crew, act, base, point)
        again = _recorded(crew, act, killed)[1] if TWICE else []
        return [
            each
            for folder in (*(_killed(crew, act, killed, second) for second in again), killed)
            for each in wrong(folder)
        ]

    with ThreadPoolExecutor(WORKERS) as pool:
        assert [each for found in pool.map(wrongs, points) for each in found] == []


@pytest.mark.parametrize("kind", ["copies", "vectors", "directory"])
def test_after_a_killed_reclaim_rows_are_live_or_restored_or_refused_by_name(
    crew: Crew, kind: str
) -> None:
    base = crew.folder / f"undone-{kind}"
    base.mkdir()
    assert crew.run(do="prepare", act="reclaim", folder=base, kind=kind) == 0
    before = _outcome(crew, "undone", "reclaim", _copy(base, "undone"))
    assert before["answers"] == [RESTORED, RESTORED]
    calm, points = _recorded(crew, "reclaim", base)
    after = _outcome(crew, "undone", "reclaim", calm)
    assert after["answers"][0] == RESTORED
    assert "gone, as after" in after["answers"][1]
    for point in points:
        found = _outcome(crew, "undone", "reclaim", _killed(crew, "reclaim", base, point))
        assert found in (before, after), point


def _recorded(crew: Crew, act: str, folder: Path) -> tuple[Path, list[str]]:
    """A copy after the act, and the points to kill at: the first and last occurrence of each step."""
    calm = _copy(folder, "calm")
    log = Path(f"{calm}.steps")
    assert crew.run(do="record", act=act, folder=calm, log=log) == 0
    counts = Counter(json.loads(log.read_text()))
    return calm, [f"{step}#{n}" for step, count in counts.items() for n in sorted({1, count})]


def _killed(crew: Crew, act: str, source: Path, point: str) -> Path:
    folder = _copy(source, point)
    assert crew.run(do="act", act=act, folder=folder, env={CRASH_AT: point}) == KILLED
    return folder


def _copy(base: Path, name: str) -> Path:
    """A copy in which a file with two names is one file, too, as in the middle of an undo."""
    copy = f"{base}+{name.replace('#', '-')}"
    subprocess.run(["cp", "-a", base, copy], check=True)
    return Path(copy)


def _outcome(crew: Crew, do: str, act: str, folder: Path) -> dict[str, Any]:
    result = Path(f"{folder}.json")
    assert crew.run(do=do, act=act, folder=folder, result=result) == 0
    return dict(json.loads(result.read_text()))
