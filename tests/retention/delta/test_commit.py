from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from retention.delta import commit as committing
from retention.delta import entries, entry_put, log_files, snapshot
from retention.delta.commit import Operation, commit
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ConflictError,
    LostCommitError,
    RefusedError,
    StalePlanError,
    StorageError,
)
from retention.storage import files, local
from retention.storage.crash_points import Step, watched_by
from tests.support.buckets import BUCKET, object_store
from tests.support.delta_tables import PROTOCOL, add, assert_as_deltalake, metadata, write_entry
from tests.support.kills import killed_at

DELETE = Operation("DELETE", "us/1", {"predicate": "[]"}, {"numRemovedFiles": 1}, "why")
NOW_NS = 1_760_000_000_000_000_000
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "x",
    "offset": 1,
    "sizeInBytes": 3,
    "cardinality": 1,
}
ICT = {"delta.enableInCommitTimestamps": "true"}


def clock() -> int:
    return NOW_NS


@pytest.fixture(autouse=True)
def _no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_put, "WINDOW_S", 0.0)
    monkeypatch.setattr(committing, "_LONGEST_PAUSE_S", 0.01)


def table(root: Path, *paths: str, **properties: str) -> DeltaSnapshot:
    described = [PROTOCOL, metadata(("id", "long"), **properties)]
    write_entry(root, 0, [{"commitInfo": {}}, *described, *(add(path) for path in paths)])
    return snapshot.read(str(root))


def adds(state: DeltaSnapshot) -> dict[str, dict[str, Any]]:
    every = (state.add_of(row) for row in range(state.files.num_rows))
    return {each["path"]: each for each in every}


def removing(*paths: str) -> Callable[[int, int, DeltaSnapshot], Iterator[Any]]:
    """A build that removes files as they are when it is called."""
    return lambda _, now_ms, state: (entries.remove_of(adds(state)[path], now_ms) for path in paths)


def info(state: DeltaSnapshot) -> dict[str, Any]:
    place = log_files.entry_place(state.root, state.version)
    return dict(entries.parse(files.read_bytes(place) or b"", place)[0]["commitInfo"])


def test_a_commit_is_described_first_and_is_no_append(tmp_path: Path) -> None:
    state = commit(table(tmp_path, "a", "b"), removing("a"), DELETE, clock)
    assert list(adds(state)) == ["b"]
    described = info(state)
    assert described.pop("txnId")
    assert described == {
        "timestamp": NOW_NS // 10**6,
        "operation": "DELETE",
        "engineInfo": "us/1",
        "operationParameters": {"predicate": "[]"},
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {"numRemovedFiles": "1"},
        "userMetadata": "why",
    }
    read = snapshot.read(str(tmp_path))
    assert (read.version, adds(read), read.stamp) == (1, adds(state), state.stamp)


def test_in_commit_times_come_first_and_never_stand_still(tmp_path: Path) -> None:
    state = table(tmp_path, "a", "b", "c", **ICT)
    write_entry(tmp_path, 1, [{"commitInfo": {"inCommitTimestamp": NOW_NS // 10**6 + 5}}])
    for path, later in (("a", 6), ("b", 7)):
        state = commit(state, removing(path), DELETE, clock)
        assert next(iter(info(state))) == "inCommitTimestamp"
        assert state.in_commit_ms == NOW_NS // 10**6 + later == info(state)["inCommitTimestamp"]


def test_appends_of_others_pass_and_the_actions_are_built_anew(tmp_path: Path) -> None:
    before = table(tmp_path, "a", "b")
    write_entry(tmp_path, 1, [{"commitInfo": {}}, add("c"), {"txn": {"appId": "x", "version": 1}}])
    write_entry(
        tmp_path, 2, [{"domainMetadata": {"domain": "delta.rowTracking", "configuration": "9"}}]
    )
    write_entry(tmp_path, 3, [{"remove": {"path": "b", "dataChange": True}}])
    built: list[tuple[int, str]] = []

    def build(version: int, now_ms: int, state: DeltaSnapshot) -> Iterator[Any]:
        built.append((version, state.domains["delta.rowTracking"]["configuration"]))
        return removing("a")(version, now_ms, state)

    state = commit(before, build, DELETE, clock)
    assert built == [(4, "9")]
    assert (state.version, list(adds(state))) == (4, ["c"])


STALE: dict[str, list[Any]] = {
    "no longer in the table": [{"remove": {"path": "a", "dataChange": False}}],
    "another deletion vector": [{"remove": {"path": "a"}}, add("a", deletionVector=VECTOR)],
    "changed the table's metadata": [metadata(("id", "long"), ("x", "long"))],
    "changed the table's protocol": [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}],
}


@pytest.mark.parametrize("reason", STALE)
def test_a_change_of_what_a_commit_rests_on_is_refused(tmp_path: Path, reason: str) -> None:
    before = table(tmp_path, "a", "b")
    pinned = entries.remove_of(adds(before)["a"], 1)
    write_entry(tmp_path, 1, STALE[reason])
    with pytest.raises(StalePlanError, match=reason):
        commit(before, lambda *_: [pinned], DELETE, clock)
    assert snapshot.read(str(tmp_path)).version == 1


def test_a_vector_replaces_the_file_and_a_file_is_not_added_twice(tmp_path: Path) -> None:
    before = table(tmp_path, "p=x%20y", "b")
    live = adds(before)["p=x%20y"]
    marked = [entries.remove_of(live, 1), entries.with_vector(live, VECTOR, 1)]
    state = commit(before, lambda *_: marked, DELETE, clock)
    assert adds(state)["p=x%20y"]["deletionVector"] == VECTOR
    for wrong in ([{"add": live}], [{"add": {**live, "path": "p=x y"}}], marked):
        with pytest.raises(StalePlanError, match=r"in the table already|another deletion vector"):
            commit(state, lambda *_, actions=wrong: actions, DELETE, clock)
    back = [entries.remove_of(adds(state)["p=x%20y"], 1), {"add": live}]
    assert adds(commit(state, lambda *_: back, DELETE, clock)) == adds(before)


def test_a_transaction_of_the_same_application_is_a_conflict(tmp_path: Path) -> None:
    before = table(tmp_path, "a")
    write_entry(tmp_path, 1, [{"txn": {"appId": "us", "version": 1}}])
    mine = Operation("DELETE", "us/1", application="us")
    with pytest.raises(ConflictError, match="version 1 has a transaction of us"):
        commit(before, removing("a"), mine, clock)


def test_an_append_only_table_is_refused_unless_nothing_is_removed(tmp_path: Path) -> None:
    before = table(tmp_path, "a", **{"delta.appendOnly": "true"})
    with pytest.raises(RefusedError, match=r"delta\.appendOnly is true"):
        commit(before, removing("a"), DELETE, clock)
    assert commit(before, lambda *_: [add("b")], DELETE, clock).version == 1


def test_another_table_in_its_place_is_refused(tmp_path: Path) -> None:
    before = table(tmp_path, "a")
    table(tmp_path, "a", "b")
    write_entry(tmp_path, 1, [add("c")])
    with pytest.raises(StalePlanError, match="another table was made in its place"):
        commit(before, removing("a"), DELETE, clock)
    advanced = snapshot.advance(before)
    assert sorted(adds(advanced)) == ["a", "b", "c"]

    def replace_table(_: int, now_ms: int, state: DeltaSnapshot) -> list[Any]:
        write_entry(tmp_path, 1, [add("longer")])
        return [entries.remove_of(adds(state)["a"], now_ms)]

    with pytest.raises(StalePlanError, match="another table was made in its place"):
        commit(advanced, replace_table, DELETE, clock)
    assert snapshot.read(str(tmp_path)).version == 1


def test_a_version_that_was_cleaned_up_is_not_committed_after(tmp_path: Path) -> None:
    for number in range(4):
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")
        DeltaTable(tmp_path).create_checkpoint()
    old = snapshot.read(str(tmp_path), 1)
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    for state in (old, snapshot.read(str(tmp_path), 1)):
        with pytest.raises(StalePlanError, match="its log was cleaned up"):
            commit(state, removing(next(iter(adds(state)))), DELETE, clock)
        assert snapshot.advance(state).version == 3


def rivals(before: DeltaSnapshot, paths: list[str], threads: int) -> list[DeltaSnapshot]:
    start = threading.Barrier(threads)

    def run(number: int) -> list[DeltaSnapshot]:
        start.wait()
        return [commit(before, removing(path), DELETE, clock) for path in paths[number::threads]]

    with ThreadPoolExecutor(threads) as pool:
        return [state for states in pool.map(run, range(threads)) for state in states]


def test_rivals_of_ours_each_commit_once(tmp_path: Path) -> None:
    paths = [f"{number}" for number in range(20)]
    before = table(tmp_path, *paths, "last", **ICT)
    states = rivals(before, paths, 4)
    assert sorted(state.version for state in states) == list(range(1, 21))
    read = snapshot.read(str(tmp_path))
    assert list(adds(read)) == ["last"]
    by_version = sorted(states, key=lambda state: state.version)
    assert [state.in_commit_ms for state in by_version] == [NOW_NS // 10**6 + n for n in range(20)]


def test_appends_of_deltalake_race_with_removals(tmp_path: Path) -> None:
    def append(number: int) -> None:
        # deltalake refuses its own append on a handle opened before a removal.
        with suppress(CommitFailedError):
            write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")
            return
        append(number)

    for number in range(6):
        append(number)
    before = snapshot.read(str(tmp_path))

    def append_more() -> None:
        for number in range(6, 12):
            append(number)

    appending = threading.Thread(target=append_more)
    appending.start()
    states = rivals(before, sorted(adds(before)), 2)
    appending.join()
    assert len(states) == 6
    state = snapshot.read(str(tmp_path))
    assert_as_deltalake(state)
    table_ = DeltaTable(tmp_path)
    assert sorted(table_.to_pyarrow_table()["id"].to_pylist()) == list(range(6, 12))
    assert (state.version, len(table_.history())) == (17, 18)
    stale = DeltaTable(tmp_path)
    commit(state, removing(next(iter(adds(state)))), DELETE, clock)
    with pytest.raises(CommitFailedError):
        stale.delete("id >= 6")


def test_a_loser_of_every_try_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "TRIES", 3)
    versions = count(1)

    def overtaken(_: int, now_ms: int, state: DeltaSnapshot) -> list[Any]:
        write_entry(tmp_path, next(versions), [add(f"{now_ms}-{state.version}")])
        return [entries.remove_of(adds(state)["a"], now_ms)]

    with pytest.raises(BusyError, match="committed first 3 times"):
        commit(table(tmp_path, "a"), overtaken, DELETE, clock)


STEPS = [Step.DELTA_COMMITTING, Step.ENTRY_SYNCED, Step.ENTRY_LINKED, Step.DELTA_COMMITTED]


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_commit_is_whole_or_absent(tmp_path: Path, step: Step) -> None:
    before = table(tmp_path, "a", "b")
    with killed_at(step):
        commit(before, removing("a"), DELETE, clock)
    state = snapshot.read(str(tmp_path))
    is_there = step in STEPS[2:]
    assert (state.version, "a" in adds(state)) == ((1, False) if is_there else (0, True))
    if is_there:
        with pytest.raises(StalePlanError):
            commit(before, lambda *_: [entries.remove_of(adds(before)["a"], 1)], DELETE, clock)
    again = commit(before, removing("b"), DELETE, clock)
    assert list(adds(again)) == ([] if is_there else ["a"])
    assert_as_deltalake(again)


def test_a_failed_disk_leaves_no_entry_or_says_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise StorageError("full")

    before = table(tmp_path, "a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(files, "create_if_absent", fail)
        with pytest.raises(StorageError, match="full"):
            commit(before, removing("a"), DELETE, clock)
    with monkeypatch.context() as patched:
        patched.setattr(local, "sync_directory", fail)
        with pytest.raises(CommitUnknownError, match="delete no file"):
            commit(before, removing("a"), DELETE, clock)


def test_an_entry_that_spark_renamed_over_ours_is_noticed(tmp_path: Path) -> None:
    def rename_over(step: Step) -> None:
        if step is Step.DELTA_COMMITTED:
            write_entry(tmp_path, 1, [add("c")])

    before = table(tmp_path, "a", "b")
    overwritten = pytest.raises(LostCommitError, match=r"0001\.json: another program overwrote")
    with watched_by(rename_over), overwritten:
        commit(before, removing("a"), DELETE, clock)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with object_store() as environment, pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        yield f"s3://{BUCKET}"


def s3_table(bucket: str, name: str) -> DeltaSnapshot:
    root = f"{bucket}/{name}"
    for number in range(4):
        write_deltalake(
            root, pa.table({"id": [number]}), mode="append", storage_options=files.storage_options()
        )
    return snapshot.read(root)


def ids(state: DeltaSnapshot) -> list[int]:
    opened = DeltaTable(state.root, storage_options=files.storage_options())
    return sorted(opened.to_pyarrow_table()["id"].to_pylist())


def test_commits_on_s3_exclude_each_other(bucket: str) -> None:
    before = s3_table(bucket, "races")
    states = rivals(before, sorted(adds(before))[:3], 3)
    assert sorted(state.version for state in states) == [4, 5, 6]
    assert len(ids(before)) == 1
    assert snapshot.read(before.root, 3).files.num_rows == 4


@pytest.mark.parametrize("lost", ["answer", "request", "everything"])
def test_an_unclear_answer_of_s3_is_resolved_by_the_entry(
    bucket: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    import obstore
    from obstore.exceptions import GenericError

    before, tries, put = s3_table(bucket, f"lost-{lost}"), count(), obstore.put
    monkeypatch.setattr(entry_put, "_PAUSES_S", (0.0, 0.0))

    def flaky(*args: Any, **options: Any) -> Any:
        number = next(tries)
        if lost == "answer" and number == 0:
            put(*args, **options)
        if lost == "everything" or number == 0:
            raise GenericError("timed out")
        return put(*args, **options)

    monkeypatch.setattr(obstore, "put", flaky)
    if lost == "everything":
        with pytest.raises(CommitUnknownError, match="timed out"):
            commit(before, removing(*adds(before)), DELETE, clock)
        assert next(tries) == 3
    else:
        assert commit(before, removing(*adds(before)), DELETE, clock).version == 4
    assert len(ids(before)) == (4 if lost == "everything" else 0)


@pytest.mark.parametrize("reading", ["works", "fails"])
def test_an_unclear_answer_with_a_rival_s_entry_is_tried_again(
    bucket: str, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    import obstore
    from obstore.exceptions import GenericError

    before, tries, put = s3_table(bucket, f"rival-{reading}"), count(), obstore.put
    read = files.read_unchanging

    def overtaken(store: Any, name: str, content: bytes, **options: Any) -> Any:
        if next(tries):
            return put(store, name, content, **options)
        put(store, name, json.dumps(add("rival")).encode(), **options)
        if reading == "fails":
            monkeypatch.setattr(files, "read_unchanging", unreadable)
        raise GenericError("reset")

    def unreadable(_: str) -> bytes:
        raise StorageError("no answer")

    monkeypatch.setattr(obstore, "put", overtaken)
    if reading == "fails":
        with pytest.raises(CommitUnknownError, match="reset"):
            commit(before, removing(*adds(before)), DELETE, clock)
        return
    state = commit(before, removing(*adds(before)), DELETE, clock)
    assert (state.version, list(adds(state)), files.read_unchanging) == (5, ["rival"], read)
