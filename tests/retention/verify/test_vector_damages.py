"""Each planted damage of deletion vectors is found: flipped, exchanged, or of another number of rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from retention.core.vector_paths import data_path, vector_place
from retention.delta.vectors import read_stored, write_vectors
from tests.retention.verify.test_damages import Planted, flip, swap
from tests.support.sandboxes import configured, lines

ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "segment_size": "4KiB", "vectors": True}
HIDDEN = (3, 4, 35, 36)
"""Two messages of the first file, and two of the second, at other positions."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A stream in whose first two files vectors hide messages."""
    folder = tmp_path_factory.mktemp("vectors")
    configured(folder, ORDERS, format="delta")
    planted = Planted(folder, "delta")
    stream = planted.warehouse.new_stream("ORDERS")
    for _ in range(3):
        stream.publish(lines(30))
    stream.delete(*HIDDEN).apply()
    assert len(list(vectors(planted))) == 2
    assert planted.verify().verdict == "ok"
    return planted


@pytest.fixture
def planted(whole: Planted, tmp_path: Path) -> Planted:
    shutil.copytree(whole.folder, tmp_path / "warehouse", symlinks=True)
    return Planted(tmp_path / "warehouse", "delta")


def vectors(planted: Planted) -> Iterator[tuple[Path, int, str]]:
    """The file and offset of each vector in use, and the data file that it belongs to."""
    paths = planted.warehouse.stream("ORDERS").opened.store.snapshot().files["path"].to_pylist()
    for path in sorted(paths):
        place = vector_place(path)
        if place is not None:
            yield planted.root / "messages" / place.path, place.offset, data_path(path)


def changed_adds(planted: Planted, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the adds with a vector in the newest entry that has some."""
    entries = [each for each in planted.entries if '"deletionVector":{' in each.read_text()]
    entry = entries[-1]
    actions = [json.loads(row) for row in entry.read_text().splitlines()]
    change([one["add"] for one in actions if one.get("add", {}).get("deletionVector")])
    entry.write_text("".join(json.dumps(one) + "\n" for one in actions))


def exchange_in_the_log(planted: Planted) -> None:
    def exchange(adds: list[dict[str, Any]]) -> None:
        one, other = adds
        one["deletionVector"], other["deletionVector"] = (
            other["deletionVector"],
            one["deletionVector"],
        )

    changed_adds(planted, exchange)


def exchange_files(planted: Planted) -> None:
    (one, *_), (other, *_) = vectors(planted)
    swap(one, other)


def replace_vector(planted: Planted, change: Callable[[BitMap64], BitMap64]) -> None:
    """Write an intact vector of other rows in the place of the first one."""
    file, offset, _ = next(vectors(planted))
    other = change(read_stored(str(file), offset))
    directory = planted.folder / "forged"
    directory.mkdir()
    write_vectors(str(directory), [other])
    shutil.move(next(directory.glob("*.bin")), file)
    directory.rmdir()


def count_fewer(planted: Planted) -> None:
    def fewer(adds: list[dict[str, Any]]) -> None:
        adds[0]["deletionVector"]["cardinality"] -= 1

    changed_adds(planted, fewer)


DAMAGES: dict[str, tuple[str, Callable[[Planted], object]]] = {
    "a bit of a vector is flipped": ("vector", lambda at: flip(next(vectors(at))[0], -6)),
    "the checksum of a vector is flipped": ("vector", lambda at: flip(next(vectors(at))[0], -1)),
    "a vector's file is truncated": (
        "vector",
        lambda at: next(vectors(at))[0].write_bytes(next(vectors(at))[0].read_bytes()[:-1]),
    ),
    "a vector's file is missing": ("vector", lambda at: next(vectors(at))[0].unlink()),
    "vectors are exchanged": ("history or log or statistics", exchange_files),
    "vectors are exchanged in the log": ("history or log or statistics", exchange_in_the_log),
    "a vector hides fewer rows": (
        "vector",
        lambda at: replace_vector(at, lambda rows: BitMap64(list(rows)[1:])),
    ),
    "a vector hides other rows": (
        "history or log or statistics",
        lambda at: replace_vector(at, lambda rows: BitMap64([row + 5 for row in rows])),
    ),
    "the log counts other hidden rows": ("vector or log", count_fewer),
    "no vector hides a row any more": (
        "vector or history or log",
        lambda at: changed_adds(at, lambda adds: adds[0].pop("deletionVector")),
    ),
}
"""The damage → the check that finds it, and how it is planted."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_planted_damage_of_a_vector_is_found_by_its_check(planted: Planted, damage: str) -> None:
    check, plant = DAMAGES[damage]
    plant(planted)
    result = planted.verify()
    assert result.verdict == "damaged"
    assert {each.check for each in result.damages} & set(check.split(" or ")), result.damages
    assert all(each.remedy and each.detail for each in result.damages), result.damages
