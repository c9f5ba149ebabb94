from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compaction import CONTENDERS, compare, make_small_files, table_of
from benchmarks.processes import ContenderError


def test_contenders_merge_the_same_files_and_lose_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make_small_files(source, files=16, messages=5, segments=2)
    assert table_of(source)["files"] == 16
    costs = compare(source, tmp_path, 1, tuple(CONTENDERS))
    assert {name: len(spent) for name, spent in costs.items()} == dict.fromkeys(CONTENDERS, 1)
    merged = {name: table_of(tmp_path / f"{name}-1")["files"] for name in CONTENDERS}
    assert merged == dict.fromkeys(CONTENDERS, 2)


def test_a_contender_that_loses_messages_is_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    make_small_files(source, files=4, messages=5, segments=2)
    monkeypatch.setitem(CONTENDERS, "ours", lambda copy: make_small_files(copy / "x", 1, 1, 1))
    monkeypatch.setattr("benchmarks.compaction.table_of", lambda place: _fewer(place, source))
    with pytest.raises(ContenderError, match="ours left 0 of 20 messages"):
        compare(source, tmp_path, 1, ["ours"])


def _fewer(place: Path, source: Path) -> dict[str, int]:
    return {"files": 4, "groups": 4, "messages": 20 if place == source else 0}
