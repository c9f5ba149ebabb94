"""Turns of writers: the number of tries, and termination."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.errors import BusyError, ConflictError
from retention.ingest.turns import ONE_BY_ONE, AllAtOnce


def test_under_a_lease_rivals_are_few() -> None:
    assert list(ONE_BY_ONE.attempts()) == list(range(20))


def test_pauses_are_random_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = [100.0], list[float]()

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        clock[0] += pause_s

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleep)
    numbers = list(AllAtOnce(wait_s=10).attempts())
    assert numbers == list(range(len(numbers)))
    assert 20 < len(numbers) < 200
    assert max(pauses[:3]) <= 0.02
    assert max(pauses) <= 0.5
    assert 110 <= clock[0] <= 110.5
    assert list(AllAtOnce(wait_s=0).attempts()) == [0]


def test_a_writer_that_is_never_first_is_busy_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "retention.yaml").write_text("defaults: {format: parquet}\nbuckets: [{name: B}]\n")
    kv = open_warehouse(tmp_path).kv("B")
    kv.put("a", "1")
    attempts = []

    def second(*_: Any) -> int:
        attempts.append(1)
        raise ConflictError("another commit came first")

    monkeypatch.setattr(kv.stream.opened.store, "commit", second)
    monkeypatch.setattr(kv._writer, "_turns", AllAtOnce(wait_s=0.5))
    with pytest.raises(BusyError, match=r"other writers committed first .* nothing was appended"):
        kv.put("a", "2")
    assert len(attempts) > 1
    assert open_warehouse(tmp_path).kv("B").get("a").text == "1"
    staged = tmp_path / "streams" / "KV_B" / "_retention" / "staging"
    assert list(staged.rglob("*.parquet")) == []
