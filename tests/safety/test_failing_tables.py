"""Every operation on a disk fails in a pass over a table in place; repeating it gives the normal result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.crew import WORKERS, Crew
from tests.support.faults import Call, Kind, kinds_of
from tests.support.table_crashes import ACTS
from tests.support.unlucky import claims

ALL = os.environ.get("RETENTION_FAULTS") == "all"
"""Whether each operation fails at its first and last call: `make long NAME=faults`; else only the deciding ones."""
DECIDING = ("link", "replace")


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    hired = Crew("tests.support.table_crashes", tmp_path_factory.mktemp("faults"))
    yield hired
    hired.stop()


@pytest.mark.parametrize("kind", ["copies", "vectors", "directory"])
@pytest.mark.parametrize("act", ACTS if ALL else ["apply"])
def test_what_fails_once_changes_nothing_in_the_end(crew: Crew, act: str, kind: str) -> None:
    base = crew.folder / f"{act}-{kind}"
    base.mkdir()
    assert crew.run(do="prepare", act=act, folder=base, kind=kind) == 0
    old = _asked(crew, "outcome", act, base)
    calm = _copy(base, "calm")
    calls = [Call(*call) for call in _asked(crew, "fail", act, calm, plan=[])["calls"]]
    new = _asked(crew, "outcome", act, calm)

    def wrong(fault: tuple[Call, Kind]) -> list[str]:
        call, how = fault
        folder = _copy(base, f"{call.operation}{call.nth}-{how}".replace(" ", "-"))
        done = _asked(crew, "fail", act, folder, plan=[[call.operation, call.nth, how]])
        held = _asked(crew, "outcome", act, folder)
        is_part_moved = _is_part_moved(done["sentence"], held, kind)
        if is_part_moved:
            held = _asked(crew, "settled", act, folder)
        broken = {
            "ends with another program's error": not done["ours"],
            "holds neither the old nor the new rows": held["rows"]
            not in (old["rows"], new["rows"]),
            "ends as if done": not done["error"] and _held(held) != _held(new),
            "claims that nothing happened": claims(done["sentence"])
            and (is_part_moved or _held(held) != _held(old)),
        }
        wrongs = [each for each, is_so in broken.items() if is_so]
        again = _asked(crew, "recover", act, folder)
        if again != new:
            wrongs.append(f"ends with {again} after a second try")
        shutil.rmtree(folder)
        return [f"{call} {how}: {each}: {done['sentence']}" for each in wrongs]

    with ThreadPoolExecutor(WORKERS) as pool:
        wrongs = [each for of_one in pool.map(wrong, _faults(calls)) for each in of_one]
    assert not wrongs, "\n".join(wrongs)


def _held(outcome: dict[str, Any]) -> Any:
    """The rows of a table, or the files of a directory, and the files that a reclaim deletes."""
    return outcome["rows"], outcome.get("stored")


def _is_part_moved(sentence: str, outcome: dict[str, Any], kind: str) -> bool:
    """Whether some files of a directory may be moved: then a sentence says so, and the next run ends it."""
    return kind == "directory" and "some files" in sentence and bool(outcome["unfinished"])


def _faults(calls: list[Call]) -> list[tuple[Call, Kind]]:
    """The first and the last call of each operation for each kind of path, with each of its failures."""
    last = {(call.operation, call.place): call for call in calls}
    first = {(call.operation, call.place): call for call in reversed(calls)}
    ends = dict.fromkeys([*first.values(), *last.values()])
    return [
        (call, kind)
        for call in ends
        if ALL or call.operation in DECIDING
        for kind in kinds_of(call.operation)
    ]


def _copy(base: Path, name: str) -> Path:
    return Path(shutil.copytree(base, f"{base}+{name}"))


def _asked(crew: Crew, do: str, act: str, folder: Path, **case: Any) -> dict[str, Any]:
    result = Path(f"{folder}.json")
    assert crew.run(do=do, act=act, folder=folder, result=result, **case) == 0
    return dict(json.loads(result.read_text()))
