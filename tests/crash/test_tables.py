"""A run on a table in place is killed after every step; repeating it gives the normal result."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from retention.storage.crash_points import CRASH_AT
from tests.support.crew import WORKERS, Crew
from tests.support.table_crashes import ACTS

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
    calm, log = _copy(base, "calm"), crew.folder / f"{base.name}.steps"
    assert crew.run(do="record", act=act, folder=calm, log=log) == 0
    expected = _outcome(crew, "outcome", act, calm)
    assert expected["unfinished"] == []
    counts = Counter(json.loads(log.read_text()))
    points = [f"{step}#{n}" for step, count in counts.items() for n in sorted({1, count})]

    def wrong(point: str) -> list[str]:
        folder = _copy(base, point)
        assert crew.run(do="act", act=act, folder=folder, env={CRASH_AT: point}) == KILLED
        found = _outcome(crew, "recover", act, folder)
        return [] if found == expected else [f"{point}: {found}"]

    with ThreadPoolExecutor(WORKERS) as pool:
        assert [each for found in pool.map(wrong, points) for each in found] == []


def _copy(base: Path, name: str) -> Path:
    return Path(shutil.copytree(base, f"{base}+{name.replace('#', '-')}"))


def _outcome(crew: Crew, do: str, act: str, folder: Path) -> dict[str, Any]:
    result = Path(f"{folder}.json")
    assert crew.run(do=do, act=act, folder=folder, result=result) == 0
    return dict(json.loads(result.read_text()))
