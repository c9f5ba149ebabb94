"""Listing only changed directories finds the same files as listing all, despite changes by others."""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.datafile.parquet import write_messages
from retention.engines.select import Engines
from retention.errors import ForeignRowsError, StorageError
from retention.planners.cached import plan_pass
from retention.ports import Snapshot
from retention.stores.layout import Layout
from retention.stores.parquet import listing
from retention.stores.parquet.log import CommitEntry, ParquetLog
from retention.stores.parquet.settle_files import Places
from tests.contract.conftest import Stage
from tests.contract.streams import append, latest, removing, rows
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with

SOON_S = 0.05


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WORTH_FILES", 1)
    monkeypatch.setattr(listing, "COARSE_NS", int(SOON_S * 10**9 / 2))


@pytest.fixture
def place(tmp_path: Path) -> Stage:
    made = Stage("parquet", tmp_path / "streams" / "ORDERS")
    made.open().create()
    for segment in (1, 11, 21):
        append(made.open(), range(segment, segment + 3), segment=segment)
    return made


def places(place: Stage) -> Places:
    layout = Layout(str(place.root), "ORDERS")
    return Places(layout, ParquetLog(layout))


def newcomers(place: Stage) -> list[str]:
    found = places(place)
    return found.newcomers(found.finish_moves())


def remembered(place: Stage) -> None:
    time.sleep(SOON_S)
    assert newcomers(place) == []
    assert places(place).version_token() is not None


def listed(place: Stage) -> list[str]:
    """The directories listed to find new files."""
    real, seen = listing._list, []

    def told(directory: str, inside: str, since: int) -> tuple[list[str], list[str]]:
        seen.append(inside)
        return real(directory, inside, since)

    with patch.object(listing, "_list", told):
        newcomers(place)
    return sorted(seen)


def theirs(place: Stage, segment: int, name: str) -> Path:
    path = place.root / f"messages/partition=0/segment={segment}/{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_only_directories_that_changed_are_listed_again(place: Stage) -> None:
    remembered(place)
    assert listed(place) == []
    theirs(place, 11, "theirs")
    assert listed(place) == ["partition=0/segment=11/"]
    theirs(place, 31, "theirs")
    assert listed(place) == ["partition=0/", "partition=0/segment=11/", "partition=0/segment=31/"]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_is_what_a_whole_listing_finds(place: Stage, seed: int) -> None:
    dice = random.Random(seed)
    there: list[Path] = []
    for number in range(12):
        act = dice.choice(["put", "put", "take", "commit", "drop", "wait"])
        if act == "put":
            there.append(theirs(place, dice.choice([1, 11, 41]), f"theirs-{number}"))
        elif act == "take" and there:
            there.pop(dice.randrange(len(there))).unlink()
        elif act == "commit" and not there:
            append(place.open(), range(100 + number * 10, 105 + number * 10), segment=21)
        elif act == "drop" and not there:
            store = place.open()
            snapshot, found = latest(store)
            store.commit(removing(found.slice(0, 1)), snapshot)
        elif act == "wait":
            time.sleep(SOON_S)
        seen = places(place)
        state = seen.finish_moves()
        assert seen.newcomers(state) == seen.foreign(state)


def test_a_directory_that_changed_a_moment_ago_is_listed_again(
    place: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "COARSE_NS", 2 * 10**9)
    (place.root / "_retention" / "directories.arrow").unlink(missing_ok=True)
    assert newcomers(place) == []
    every = ["", "partition=0/", *(f"partition=0/segment={base}/" for base in (1, 11, 21))]
    assert listed(place) == sorted(every)
    assert places(place).version_token() is None


def test_a_time_that_somebody_set_back_hides_nothing(place: Stage) -> None:
    remembered(place)
    folder = place.root / "messages/partition=0/segment=11"
    before = folder.stat()
    theirs(place, 11, "theirs")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert newcomers(place) == ["partition=0/segment=11/theirs.parquet"]


def test_where_directories_do_not_tell_of_changes_nothing_is_remembered(
    place: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    time.sleep(SOON_S)
    (place.root / "_retention" / "directories.arrow").unlink(missing_ok=True)
    monkeypatch.setattr(listing, "_stamp", lambda _: (1, 1, 1))
    assert newcomers(place) == []
    theirs(place, 11, "theirs")
    assert newcomers(place) == ["partition=0/segment=11/theirs.parquet"]


def test_a_log_that_was_put_back_knows_fewer_files(place: Stage) -> None:
    remembered(place)
    (place.root / "_retention" / "log" / f"{3:020d}.json").unlink()
    assert [name.split("/")[1] for name in newcomers(place)] == ["segment=21"]


def test_a_stream_made_anew_forgets(place: Stage) -> None:
    remembered(place)
    shutil.rmtree(place.root / "_retention" / "log")
    ParquetLog(Layout(str(place.root), "ORDERS")).append(CommitEntry(0, 0, table_id="another"))
    assert len(newcomers(place)) == 3


@pytest.mark.parametrize("at", [0, 0.3, 0.6, 0.99])
def test_a_flipped_bit_loses_what_was_remembered_and_nothing_else(place: Stage, at: float) -> None:
    remembered(place)
    hurt = place.root / "_retention" / "directories.arrow"
    content = bytearray(hurt.read_bytes())
    content[int(len(content) * at)] ^= 0x10
    hurt.write_bytes(bytes(content))
    assert places(place).version_token() is None
    assert len(listed(place)) == 5
    hurt.write_bytes(bytes(content[: len(content) // 2]))
    assert places(place).version_token() is None


def test_a_mark_lasts_until_anything_changes(place: Stage) -> None:
    assert places(place).version_token() is None
    remembered(place)
    token = places(place).version_token()
    assert places(place).version_token() == token
    append(place.open(), range(31, 34), segment=31)
    assert places(place).version_token() is None
    remembered(place)
    later = places(place).version_token()
    assert later != token
    theirs(place, 11, "theirs")
    assert places(place).version_token() is None


def test_a_pass_that_was_told_when_something_is_due_does_not_open_the_log(tmp_path: Path) -> None:
    warehouse = warehouse_with(tmp_path, "parquet", START, max_age="1h")
    opened = warehouse.stream("ORDERS").opened
    lay(opened, even_segments(3, 10))
    time.sleep(SOON_S)

    def snapshot() -> Snapshot | None:
        with Engines("local") as engines:
            return plan_pass(
                warehouse.stream("ORDERS").opened, START + 100 * SECOND, engines
            ).snapshot

    assert [snapshot() is None for _ in range(3)] == [False, False, True]
    theirs = f"{opened.root}/messages/partition=0/segment=31/theirs.parquet"
    write_messages(theirs, iter([rows(range(31, 34))]))
    found = snapshot()
    assert found is not None
    assert found.handle.state.files.num_rows == 3 + 1


def test_a_file_with_a_column_that_a_rewrite_would_lose_is_not_taken_in(tmp_path: Path) -> None:
    opened = warehouse_with(tmp_path, "parquet", START).stream("ORDERS").opened
    lay(opened, even_segments(3, 10))
    theirs = Path(opened.root, "messages/partition=0/segment=31/theirs.parquet")
    table = pa.concat_tables([rows(range(31, 34))])
    theirs.parent.mkdir()
    pq.write_table(table.append_column("note", pa.array(["a", "b", "c"])), theirs)
    with pytest.raises(ForeignRowsError, match=r"no message has.*repair foreign"):
        opened.store.inventory(opened.store.snapshot())
    pq.write_table(table, theirs)
    assert opened.store.inventory(opened.store.snapshot()).files.num_rows == 4


@pytest.mark.parametrize("act", ["scandir", "stat"])
def test_a_directory_that_the_storage_keeps_from_us_is_told(place: Stage, act: str) -> None:
    broken = OSError(errno.EIO, os.strerror(errno.EIO))
    with patch.object(os, act, side_effect=broken), pytest.raises(StorageError, match="messages"):
        listing.walk(f"{place.root}/messages")
