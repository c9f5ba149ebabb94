"""Erasures in archives: what was erased is in no copy, and a restore never brings it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.erasure.test_erase import EVE, STORE, World


class Archived(World):
    """A stream whose runs archived messages of a person."""

    def __init__(self, folder: Path, store: str) -> None:
        super().__init__(folder, store, archive="kept", segment_span="1h")
        for _ in range(3):
            self.publish(3)
        self.stream.purge(EVE, keep=7).apply()
        self.stream.purge("orders.>", keep=12).apply()

    def seqs(self) -> list[int]:
        return [row["seq"] for table in self.stream.messages() for row in table.to_pylist()]


@STORE
def test_no_copy_has_what_was_erased(tmp_path: Path, store: str) -> None:
    world = Archived(tmp_path, store)
    in_archive = {path for path, _ in world.left() if path.startswith("kept/")}
    assert len(in_archive) >= 2
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert report.is_done, report
    assert world.left() == []
    assert len(report.record.archived) == len(in_archive)
    assert len(report.record.archive_records) == 1
    restored = world.stream.restore()
    assert restored.messages > 0
    assert world.subjects() == ["orders.bob"] * 9
    assert world.left() == []
    assert world.stream.verify().damages == ()
