"""Parquet streams: the log entry is the commit, and the next process to open finishes moves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from retention.datafile import parquet
from retention.errors import (
    BusyError,
    CommitUnknownError,
    DamagedError,
    ForeignRowsError,
    RetentionError,
    StalePlanError,
    UsageError,
)
from retention.ports import Store, Swap
from retention.schemas.files import LOGGED_FILES
from retention.storage import files
from retention.stores import StoreSettings, stream_table
from retention.stores.layout import Layout
from retention.stores.lease import held
from retention.stores.parquet import log as parquet_log
from retention.stores.parquet.log import ParquetLog
from retention.stores.parquet.settle_files import Places
from retention.stores.parquet.store import ParquetStore
from tests.contract.conftest import NOW_NS, Stage
from tests.contract.streams import append, appending, latest, removing, rows, sequences, staged


@pytest.fixture
def place(tmp_path: Path) -> Stage:
    return Stage("parquet", tmp_path / "streams" / "ORDERS")


@pytest.fixture
def store(place: Stage) -> Store:
    made = place.open()
    made.create()
    return made


def visible(place: Stage) -> set[str]:
    """The view of a plain reader of `messages/`."""
    messages = place.root / "messages"
    return {str(path.relative_to(messages)) for path in messages.rglob("*.parquet")}


class KilledError(BaseException):
    """A stand-in for SIGKILL: no later code runs."""


def kill_after_moves(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Die after the next `count` renames."""
    real = files.move

    def some(pairs: Iterable[tuple[str, str]]) -> None:
        real([pair for pair, _ in zip(list(pairs), range(count), strict=False)])
        raise KilledError

    monkeypatch.setattr(files, "move", some)


def test_format_parquet_is_refused_on_object_stores() -> None:
    with pytest.raises(UsageError, match=r"cannot rename.*format: delta"):
        stream_table("s3://b/streams/A", "A", StoreSettings("parquet"), lambda: 0)


def test_formats_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'orc' does not exist"):
        stream_table(str(tmp_path), "A", StoreSettings("orc"), lambda: 0)


def test_an_entry_says_everything_about_its_commit(place: Stage, store: Store) -> None:
    append(store, range(1, 11), batches={"loader": 3})
    snapshot, found = latest(store)
    store.commit(removing(found, run="r9"), snapshot)
    log = place.root / "_retention" / "log"
    first, second = (json.loads((log / f"{n:020d}.json").read_text()) for n in (1, 2))
    assert first["add"] == found.to_pylist()
    assert first["batches"] == {"loader": 3}
    assert second["remove"] == found["path"].to_pylist()
    assert (second["run"], second["time_ms"]) == ("r9", NOW_NS // 10**6)
    assert (second["next_seq"], second["open_base"]) == ({"0": 11}, {"0": 1})


def test_removed_files_go_to_the_trash_unchanged(place: Stage, store: Store) -> None:
    append(store, range(1, 11))
    snapshot, found = latest(store)
    path = found["path"][0].as_py()
    before = (place.root / "messages" / path).stat()
    store.commit(removing(found), snapshot)
    after = (place.root / "_retention" / "trash" / path).stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert visible(place) == set()


@pytest.mark.parametrize("moves", range(5))
def test_a_run_killed_between_its_moves_is_finished_by_the_next(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    append(store, range(1, 11))
    snapshot, found = latest(store)
    after = staged(store, rows(range(4, 8)), rows(range(8, 11)))
    with monkeypatch.context() as patched:
        kill_after_moves(patched, moves)
        with pytest.raises(KilledError):
            store.commit(removing(found, after), snapshot)
    # A reader of the log that moves no files finds every row at any location of its file.
    other = place.open()
    assert isinstance(other, ParquetStore)
    state = ParquetLog(other._layout).read()
    assert sequences(other, state.files) == list(range(4, 11))
    assert sequences(other) == list(range(4, 11))
    assert visible(place) == set(after["path"].to_pylist())


def test_a_run_killed_before_its_entry_changed_nothing(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 11))
    snapshot, found = latest(store)
    before = visible(place)

    def die(*_: object) -> bool:
        raise KilledError

    after = staged(store, rows(range(4, 11)))
    with monkeypatch.context() as patched:
        patched.setattr(files, "create_if_absent", die)
        with pytest.raises(KilledError):
            store.commit(removing(found, after), snapshot)
    assert sequences(place.open()) == list(range(1, 11))
    assert visible(place) == before


def test_an_undo_during_unfinished_moves_wins(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 11))
    snapshot, found = latest(store)
    with monkeypatch.context() as patched:
        kill_after_moves(patched, 0)
        with pytest.raises(KilledError):
            store.commit(removing(found), snapshot)
    other = place.open()
    other.commit(removing(found.slice(0, 0), found), other.snapshot())
    (place.root / "_retention" / "log" / "moved").write_text("1")
    assert sequences(place.open()) == list(range(1, 11))
    assert visible(place) == set(found["path"].to_pylist())


def test_a_lost_mark_of_finished_moves_only_costs_time(place: Stage, store: Store) -> None:
    append(store, range(1, 11))
    snapshot, found = latest(store)
    store.commit(removing(found, staged(store, rows(range(4, 11)))), snapshot)
    before = visible(place)
    (place.root / "_retention" / "log" / "moved").unlink()
    assert sequences(place.open()) == list(range(4, 11))
    assert visible(place) == before


@pytest.mark.slow
def test_every_hundredth_version_has_a_full_list_and_readers_start_there(
    place: Stage, store: Store
) -> None:
    for seq in range(1, 103):
        append(store, [seq], batches={"loader": seq})
    log = place.root / "_retention" / "log"
    assert [path.name for path in log.glob("*.parquet")] == [f"{100:020d}.parquet"]
    for version in range(1, 99):
        (log / f"{version:020d}.json").write_text("not read any more")
    again = place.open()
    assert sequences(again) == list(range(1, 103))
    assert again.snapshot().counters.batches == {"loader": 102}


def test_entries_that_name_many_files_have_a_list_of_their_own(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_log, "LIST_FROM_FILES", 3)
    log = place.root / "_retention" / "log"

    def listed() -> list[int]:
        return sorted(int(path.stem) for path in log.glob("*.parquet"))

    for seq in range(1, 17):
        append(store, [seq])
    assert listed() == [3, 6, 9, 12, 15]
    for seq in range(17, 31):
        append(store, [seq])
    assert listed() == [3, 6, 9, 12, 15, 19, 25]
    for version in range(1, 25):
        (log / f"{version:020d}.json").write_text("not read any more")
    assert sequences(place.open()) == list(range(1, 31))


@pytest.mark.slow
def test_a_damaged_list_only_costs_time(place: Stage, store: Store) -> None:
    for seq in range(1, 101):
        append(store, [seq])
    (place.root / "_retention" / "log" / f"{100:020d}.parquet").write_bytes(b"PAR1")
    assert sequences(place.open()) == list(range(1, 101))


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"version": 1}'])
def test_a_log_with_a_hole_is_damaged(place: Stage, store: Store, content: str | None) -> None:
    append(store, range(1, 3))
    append(store, range(3, 5))
    entry = place.root / "_retention" / "log" / f"{1:020d}.json"
    entry.unlink()
    if content is not None:
        entry.write_text(content)
    with pytest.raises(DamagedError, match=entry.name):
        place.open().snapshot()


def test_a_log_read_from_a_known_state_on_is_the_log_read_whole(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 11))
    log = ParquetLog(Layout(str(place.root), "ORDERS"))
    known = log.read()
    snapshot, found = latest(store)
    store.commit(removing(found, run="r9"), snapshot)
    append(store, range(11, 31))
    read: list[int] = []
    content = log._content

    def counted(version: int) -> bytes:
        read.append(version)
        return content(version)

    monkeypatch.setattr(log, "_content", counted)
    ahead = log.read(known=known)
    assert read == [known.version + 1, known.version + 2]
    assert log.read(known=ahead) is ahead
    assert ahead == log.read()
    assert ahead.unlisted > known.unlisted


def test_a_state_of_a_replaced_log_is_not_read_on(place: Stage, store: Store) -> None:
    append(store, range(1, 11))
    log = ParquetLog(Layout(str(place.root), "ORDERS"))
    known = log.read()
    shutil.rmtree(place.root)
    other = place.open()
    other.create()
    append(other, range(1, 4))
    append(other, range(4, 6))
    assert log.read(known=known) == log.read()
    assert log.read().table_id != known.table_id


def test_rivals_that_keep_coming_first_end_in_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 11))
    snapshot, found = latest(store)
    monkeypatch.setattr(files, "create_if_absent", lambda *_: False)
    with pytest.raises(BusyError, match="20 times"):
        store.commit(removing(found), snapshot)


def test_a_full_disk_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = store.snapshot()
    added = staged(store, rows(range(1, 4)))

    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "create_if_absent", full)
        with pytest.raises(RetentionError, match="nothing was changed; free space") as caught:
            store.commit(appending(added, 4), snapshot)
    assert not isinstance(caught.value, CommitUnknownError)
    assert store.snapshot().version == 0


def test_an_entry_that_may_not_be_durable_is_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = store.snapshot()
    added = staged(store, rows(range(1, 4)))
    real = files.create_if_absent

    def late(location: str, content: bytes) -> bool:
        real(location, content)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(files, "create_if_absent", late)
        with pytest.raises(CommitUnknownError, match="delete no file"):
            store.commit(appending(added, 4), snapshot)
    store.discard(added["path"].to_pylist())
    assert sequences(store) == [1, 2, 3]


def test_files_outside_a_segment_are_refused(place: Stage, store: Store) -> None:
    for name in ("stray.parquet", "partition=0/segment=__HIVE_DEFAULT_PARTITION__/x.parquet"):
        stray = place.root / "messages" / name
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_bytes(b"")
        with pytest.raises(ForeignRowsError, match=stray.name):
            store.inventory(store.snapshot())
        stray.unlink()


def test_unfinished_writes_of_others_are_not_looked_at(place: Stage, store: Store) -> None:
    folder = place.root / "messages" / "_temporary" / "0"
    folder.mkdir(parents=True)
    (folder / "part.parquet").write_bytes(b"half")
    (place.root / "messages" / ".part.parquet").write_bytes(b"half")
    assert sequences(store) == []


def test_a_removed_file_that_is_back_is_refused(place: Stage, store: Store) -> None:
    append(store, range(1, 11))
    snapshot, found = latest(store)
    path = found["path"][0].as_py()
    content = (place.root / "messages" / path).read_bytes()
    store.commit(removing(found), snapshot)
    (place.root / "messages" / path).write_bytes(content)
    with pytest.raises(ForeignRowsError, match="was removed from this stream and is back"):
        store.inventory(store.snapshot())


def test_a_lost_log_is_refused_while_its_files_are_there(place: Stage, store: Store) -> None:
    append(store, range(1, 11))
    append(store, range(11, 15), segment=11)
    for path in sorted((place.root / "_retention").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(DamagedError, match=r"the log of stream .* is gone"):
        place.open().create()


def between(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Run another act once, right after (or during) the store's search for files."""
    real = getattr(Places, name)
    waiting = [act]

    def first_that(self: Places, *given: Any) -> Any:
        before = real(self, *given) if name == "find" else None
        if waiting:
            waiting.pop()()
        return before if name == "find" else real(self, *given)

    monkeypatch.setattr(Places, name, first_that)


def test_a_file_that_a_run_takes_away_meanwhile_is_still_read(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 11))
    append(store, range(11, 21), segment=11)
    snapshot, known = latest(store)
    rival = place.open()
    between(monkeypatch, "find", lambda: rival.commit(removing(known.slice(0, 1)), snapshot))
    (first, second) = store.data_files(known)
    rest, _ = latest(rival)
    rival.commit(removing(known.slice(1)), rest)
    assert visible(place) == set()
    read = [parquet.read_columns(one, ["seq"])[0]["seq"].to_pylist() for one in (first, second)]
    assert read == [list(range(1, 11)), list(range(11, 21))]


def test_a_file_that_an_undo_brings_back_meanwhile_is_no_foreign_one(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 11))
    snapshot, known = latest(store)
    store.commit(removing(known), snapshot)
    rival = place.open()
    back = Swap(LOGGED_FILES.empty_table(), known, {"run": "undo"})
    emptied, _ = latest(rival)
    between(monkeypatch, "foreign", lambda: rival.commit(back, emptied))
    assert sequences(store) == list(range(1, 11))


def test_nothing_is_committed_to_a_stream_that_was_made_anew(place: Stage, store: Store) -> None:
    """A removal decided on an earlier stream of that name would leave a gap in the new one's log."""
    append(store, range(1, 11))
    append(store, range(11, 21))
    snapshot, found = latest(store)
    shutil.rmtree(place.root)
    anew = place.open()
    anew.create()
    append(anew, range(1, 4))
    with pytest.raises(StalePlanError):
        store.commit(removing(found), snapshot)
    assert sequences(place.open()) == [1, 2, 3]


def test_who_cannot_wait_for_a_mover_goes_on_without_the_moves(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 11))
    snapshot, found = latest(store)
    monkeypatch.setattr("retention.stores.parquet.settle_files.PATIENCE_S", 0.0)
    with held(str(place.root / "_retention" / "moves.lock"), wait_s=0.0):
        store.commit(removing(found, staged(store, rows(range(4, 11)))), snapshot)
        assert sequences(place.open()) == list(range(4, 11))
        assert visible(place) == set(found["path"].to_pylist())
    assert sequences(place.open()) == list(range(4, 11))
    assert visible(place) != set(found["path"].to_pylist())
