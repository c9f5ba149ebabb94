"""A reclaim costs what its dead files cost: the table is opened once, and no directory of data files is listed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.reclaim import STREAM, make_dead
from retention.api.warehouse import open_warehouse
from retention.apply.reclaim.report import ReclaimReport
from retention.apply.reclaim.run import plan_reclaim, reclaim_now
from retention.context.context import OpenedStream
from retention.delta import snapshot
from retention.delta.snapshot import DeltaSnapshot

LIVE, DEAD = 200, 10


@pytest.mark.parametrize("act", [plan_reclaim, reclaim_now])
def test_live_files_cost_one_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[OpenedStream], ReclaimReport]
) -> None:
    make_dead(tmp_path / "warehouse", LIVE, DEAD)
    opened = open_warehouse(tmp_path / "warehouse", engine="local").stream(STREAM).opened
    looked_at: list[str] = []
    openings: list[str] = []
    scandir, read = os.scandir, snapshot.read

    def listing(place: str) -> object:
        looked_at.append(str(place))
        return scandir(place)

    def opening(place: str, *version: int) -> DeltaSnapshot:
        openings.append(place)
        return read(place, *version)

    monkeypatch.setattr(os, "scandir", listing)
    monkeypatch.setattr(snapshot, "read", opening)
    report = act(opened)
    assert report.going["removed"].files == DEAD
    assert len(openings) == 1
    assert [place for place in looked_at if "partition=" in place] == []
