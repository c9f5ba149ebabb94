"""Reclaiming an archive: the oldest copies are deleted after `archive_keep`, and what is left can be restored."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse
from retention.apply.reclaim.archived import spent_copies
from retention.apply.reclaim.report import Amount
from retention.apply.reclaim.run import ARCHIVE, plan_reclaim, reclaim_now
from retention.context.holds import holds_in_effect
from retention.errors import DamagedError
from retention.rules.holds import NO_HOLDS
from retention.storage.crash_points import Step
from tests.support.kills import killed_at
from tests.support.laying import even_segments, lay
from tests.support.reclaiming import TICK_S, real_warehouse


def warehouse(folder: Path, **limits: Any) -> Warehouse:
    """The warehouse of a stream with an archive, under some limits."""
    return real_warehouse(folder, "parquet", **({"archive": "archive"} | limits))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A warehouse with two passes; the later one archived a file that the earlier one had rewritten."""
    folder = tmp_path / "w"
    opened = warehouse(folder, max_msgs=25).stream("ORDERS").opened
    lay(opened, even_segments(4, 10))
    for limit in (25, 12):
        assert warehouse(folder, max_msgs=limit).apply(as_of="now-3h")[0].error is None
    time.sleep(TICK_S)
    return folder


def copies(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("archive/*/*/messages/**/*.parquet"))


def manifests(folder: Path) -> list[Path]:
    """The manifests, the oldest first."""
    found = folder.glob("archive/*/*/manifests/*.json")
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def forgotten(folder: Path) -> dict[str, Any]:
    [record] = folder.glob("archive/*/*/forgotten.json")
    return dict(json.loads(record.read_text(encoding="utf-8")))


def age(manifest: Path, seconds: float) -> None:
    """Let a manifest be older."""
    at = manifest.stat().st_mtime - seconds
    os.utime(manifest, (at, at))


def reclaimed(folder: Path, **limits: Any) -> int:
    """The number of files that a reclaim deletes in the archive; its plan names as many."""
    opened = warehouse(folder, max_msgs=12, grace="1h", **limits).stream("ORDERS").opened
    planned, done = (
        act(opened).going.get(ARCHIVE, Amount()) for act in (plan_reclaim, reclaim_now)
    )
    assert done == planned
    return done.files


def test_copies_are_kept_for_ever_unless_a_time_is_configured(folder: Path) -> None:
    before = copies(folder)
    assert reclaimed(folder) == reclaimed(folder, archive_keep="1h") == 0
    assert copies(folder) == before


def test_old_copies_are_deleted_and_the_others_can_be_restored(folder: Path) -> None:
    first, second = manifests(folder)
    age(first, 7200)
    count = len(json.loads(first.read_text())["files"])
    assert reclaimed(folder, archive_keep="1h") == count + 1
    assert manifests(folder) == [second]
    left = {Path(each["path"]).name for each in json.loads(second.read_text())["files"]}
    assert set(copies(folder)) == left
    record = forgotten(folder)
    assert (record["manifests"], record["files"], record["deleting"]) == (1, count, [])
    assert record["newest"] == [first.stem.rpartition("-")[2]]
    restored = warehouse(folder, max_msgs=12).stream("ORDERS").restore().as_json()
    assert restored["messages"] == 13
    # The next pass goes on with the chain of manifests.
    assert warehouse(folder, max_msgs=12).apply(as_of="now-3h")[0].error is None
    [verified] = warehouse(folder, max_msgs=12).verify()
    assert verified.value is not None
    assert verified.value.damages == ()


def test_a_manifest_is_kept_as_long_as_an_earlier_one(folder: Path) -> None:
    age(manifests(folder)[1], 7200)
    assert reclaimed(folder, archive_keep="1h") == 0
    assert len(manifests(folder)) == 2


def test_a_copy_that_a_later_manifest_names_is_kept(folder: Path) -> None:
    runs = [each["run"] for each in warehouse(folder).history(["ORDERS"])]
    warehouse(folder, max_msgs=12).undo(max(runs))
    assert warehouse(folder, max_msgs=12).apply(as_of="now-3h")[0].error is None
    for manifest in manifests(folder)[:2]:
        age(manifest, 7200)
    third = json.loads(manifests(folder)[0].read_text())
    before = set(copies(folder))
    reclaimed(folder, archive_keep="1h")
    [last] = manifests(folder)
    named = {Path(each["path"]).name for each in json.loads(last.read_text())["files"]}
    assert named <= before
    assert set(copies(folder)) == named
    assert third["plan_id"] not in last.name


def test_copies_that_a_legal_hold_may_cover_are_kept(folder: Path) -> None:
    for manifest in manifests(folder):
        age(manifest, 7200)
    held = warehouse(folder, max_msgs=12, grace="1h", archive_keep="1h")
    hold = held.hold("ORDERS", reason="case 41", from_seq=20, to_seq=20)
    opened = held.stream("ORDERS").opened
    now_ns, counters = opened.clock(), opened.store.snapshot().counters
    assert spent_copies(opened, holds_in_effect(opened, counters), now_ns) == []
    assert spent_copies(opened, NO_HOLDS, now_ns) != []
    held.release_hold(hold.id, reason="over")
    assert reclaimed(folder, archive_keep="1h") > 0
    assert manifests(folder) == []


def test_a_manifest_of_another_warehouse_is_kept(folder: Path, tmp_path: Path) -> None:
    for manifest in manifests(folder):
        age(manifest, 7200)
    [place] = folder.glob("streams/ORDERS/_retention/place.json*")
    place.unlink()
    assert reclaimed(folder, archive_keep="1h") == 0


@pytest.mark.parametrize(
    "step", [Step.COPIES_FORGOTTEN, Step.MANIFESTS_DELETED, Step.COPIES_DELETED]
)
def test_a_killed_reclaim_is_finished_by_the_next_one(folder: Path, step: Step) -> None:
    for manifest in manifests(folder):
        age(manifest, 7200)
    with killed_at(step):
        reclaimed(folder, archive_keep="1h")
    reclaimed(folder, archive_keep="1h")
    assert (copies(folder), manifests(folder)) == ([], [])
    assert forgotten(folder)["deleting"] == []


def test_a_damaged_record_of_deletions_is_refused(folder: Path) -> None:
    first, _ = manifests(folder)
    age(first, 7200)
    assert reclaimed(folder, archive_keep="1h") > 0
    [record] = folder.glob("archive/*/*/forgotten.json")
    record.write_text(record.read_text().replace('"manifests": 1', '"manifests": 2'))
    with pytest.raises(DamagedError, match=r"forgotten\.json: the record of deleted copies"):
        reclaimed(folder, archive_keep="1h")
