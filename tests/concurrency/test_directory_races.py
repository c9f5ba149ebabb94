"""Passes, undos, reclaims and a writer of one directory of Parquet files at the same time: no file is lost."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.retention.tables.directories import Directory
from tests.support.crew import Crew
from tests.support.directory_races import ACTS, opened, run_pass

RACES = int(os.environ.get("RETENTION_RACES", "2"))
"""Races of each kind: 50 in `make long NAME=races`."""
START = {f"kind=x/{number}.parquet" for number in range(6)} | {
    "kind=x/b.parquet",
    "kind=y/c.parquet",
    "kind=y/d.parquet",
}
FIRST = {"kind=x/a.parquet"}
"""The file of the run before."""
ADDED = {f"kind=z/{number}.parquet" for number in range(10, 30)}
LEAD_S = 0.04
"""The longest time, in seconds, by which one of the two begins before the other."""


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    hired = Crew("tests.support.directory_races", tmp_path_factory.mktemp("races"))
    yield hired
    hired.stop()


@pytest.mark.parametrize("second", [*ACTS])
@pytest.mark.parametrize("first", ["pass", "undo"])
def test_each_file_is_in_one_place(crew: Crew, first: str, second: str) -> None:
    rivals = (first, second)
    chance, counts = random.Random(str(rivals)), Counter[tuple[str, ...]]()
    for number in range(RACES):
        folder = crew.folder / f"{'-'.join(rivals)}-{number}"
        folder.mkdir()
        assert crew.run(do="prepare", folder=folder) == 0
        lead = chance.uniform(-LEAD_S, LEAD_S)
        answers = _race(crew, folder, rivals, lead)
        _check(folder, rivals)
        counts[
            tuple(
                f"{name} {answer.partition(':')[0]}"
                for name, answer in zip(rivals, answers, strict=True)
            )
        ] += 1
        # What is due in the end is removed, whatever happened before.
        run_pass(folder, 0.75)
        assert not _old(folder) & _live(folder)
        _check(folder, rivals)
    print(f"\n{rivals}: {dict(counts)}")


def _race(crew: Crew, folder: Path, rivals: tuple[str, str], lead: float) -> list[str]:
    def run(at: int) -> str:
        result = Path(f"{folder}-{at}.json")
        after = max(lead if at else -lead, 0)
        assert crew.run(do=rivals[at], folder=folder, after_s=after, result=result) == 0
        return str(json.loads(result.read_text()))

    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(run, range(2))]


def _check(folder: Path, rivals: tuple[str, str]) -> None:
    """Each file is live or aside, never both; only those of the first run may have been deleted."""
    histories = [opened(folder, 1, name).history for name in ("warehouse", "other")]
    files = [*_live(folder), *_aside(folder)]
    expected = START | FIRST | (ADDED if "write" in rivals else set())
    assert max(Counter(files).values()) == 1, files
    gone = expected - {*files}
    assert (gone, {*files} - expected) in (
        (set(), set()),
        (FIRST, set()) if "reclaim" in rivals else (),
    )
    assert [run for history in histories for run in history.unfinished()] == []
    statuses = {record.status for history in histories for record in history.outcomes()}
    assert statuses <= {"done", "abandoned"}


def _live(folder: Path) -> set[str]:
    return {*Directory(opened(folder, 0)).files()}


def _aside(folder: Path) -> list[str]:
    root = folder / "lake" / "_retention" / "events"
    return [
        path.relative_to(root).as_posix().partition("/")[2].removesuffix(".removed")
        for path in root.rglob("*.removed")
    ]


def _old(folder: Path) -> set[str]:
    """The files with old rows only."""
    numbered = {path for path in START | ADDED if Path(path).stem.isdigit()}
    return {path for path in numbered if int(Path(path).stem) % 2} | FIRST
