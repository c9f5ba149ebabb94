"""The newest live files, derived from an earlier version by the entries of a Delta log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from retention.ports import Snapshot
from tests.support.reclaiming import again, emptied, real_warehouse, run_pass


def publish(folder: Path) -> None:
    stream = real_warehouse(folder, "delta", max_msgs=15).stream("ORDERS")
    stream.publish([b'{"subject": "a", "data": "x"}'] * 2)


def publish_and_pass(folder: Path) -> None:
    publish(folder)
    run_pass(folder)


def restore(folder: Path) -> None:
    table = DeltaTable(folder / "streams" / "ORDERS" / "messages")
    table.restore(table.version() - 1)


CASES: dict[str, tuple[Callable[[Path], None], int]] = {
    "files came": (publish, 0),
    "files came and went": (publish_and_pass, 0),
    "another program restored": (restore, 1),
    "nothing happened": (lambda _: None, 1),
}
"""Changes, and the resulting number of table opens."""


@pytest.mark.parametrize(("act", "openings"), CASES.values(), ids=CASES)
def test_live_files_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], None], openings: int
) -> None:
    opened = emptied(tmp_path, "delta")
    before = opened.store.snapshot()
    act(tmp_path)
    live = set(again(tmp_path).store.snapshot().files["path"].to_pylist())
    snapshots: list[Snapshot] = []
    whole = opened.store.snapshot

    def snapshot() -> Snapshot:
        snapshots.append(whole())
        return snapshots[-1]

    monkeypatch.setattr(opened.store, "snapshot", snapshot)
    dead = opened.table_format.dead_files(opened.layout, opened.store)
    with dead.at_rest(before) as followed:
        assert sorted(followed["path"].to_pylist()) == sorted(live)
    assert len(snapshots) == openings
