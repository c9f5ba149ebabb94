"""Key-value buckets on every store: operations, expectations, expiry, history, watch, locks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from retention.api.bucket import Bucket
from retention.api.warehouse import Warehouse, open_warehouse
from retention.buckets.entry import Entry
from retention.buckets.write import BucketWriter
from retention.context import digest_index, file_rows
from retention.core.units import HOUR, MINUTE
from retention.errors import (
    BusyError,
    KeyExistsError,
    LockLostError,
    MissingKeyError,
    RefusedError,
    RetentionError,
    RevisionError,
    UsageError,
)
from retention.storage import files
from tests.contract.conftest import FORMATS, STORES
from tests.support.sandboxes import NOW

BUCKETS = [
    {"name": "PLAIN", "history": 5},
    {"name": "ONE"},
    {"name": "SHORT", "ttl": "1h", "limit_marker_ttl": "1m", "history": 3},
    {"name": "LOCKS", "ttl": "1h"},
    {"name": "COPY", "mirror": "PLAIN", "history": 5},
    {"name": "SMALL", "max_bytes": 200, "max_value_size": 50},
]


@dataclass
class Lake:
    """A warehouse with buckets, and its clock."""

    place: str
    format: str
    now_ns: int = NOW

    def warehouse(self) -> Warehouse:
        return open_warehouse(self.place, clock=lambda: self.now_ns)

    def kv(self, name: str) -> Bucket:
        return self.warehouse().kv(name)


def laid(place: str, table_format: str) -> Lake:
    content = {"defaults": {"format": table_format}, "buckets": BUCKETS}
    files.replace(f"{place}/retention.yaml", json.dumps(content).encode())
    return Lake(place, table_format)


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return laid(str(tmp_path), request.param)


@pytest.fixture(params=STORES)
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Warehouses including one on an object store, where every read costs twenty times as much."""
    if not request.param.endswith("-s3"):
        return laid(str(tmp_path), request.param)
    return laid(request.getfixturevalue("bucket"), "delta")


def brief(entries: list[Entry]) -> list[tuple[str, int, str, bytes]]:
    return [(entry.key, entry.revision, entry.operation, entry.value) for entry in entries]


def refused(kind: type[RetentionError], act: Callable[[], object]) -> RetentionError:
    with pytest.raises(kind) as raised:
        act()
    assert type(raised.value) is kind
    return raised.value


def test_values_come_back_under_their_revisions(lake: Lake) -> None:
    kv = lake.kv("PLAIN")
    assert [kv.put("a", b"1"), kv.put("b.c", "zwei"), kv.put("a", {"three": 3})] == [1, 2, 3]
    assert (kv.get("a").json(), kv.get("b.c").text, kv.get("a", revision=1).value) == (
        {"three": 3},
        "zwei",
        b"1",
    )
    entry = kv.get("a")
    assert (entry.bucket, entry.revision, entry.created_ns, entry.operation) == (
        "PLAIN",
        3,
        NOW,
        "put",
    )
    assert kv.keys() == ["a", "b.c"]
    assert kv.keys("b.>") == kv.keys("*.c") == ["b.c"]
    assert brief(kv.entries()) == [("b.c", 2, "put", b"zwei"), ("a", 3, "put", b'{"three": 3}')]
    assert kv.put_all({"x": b"5", "y": b"6"}) == (4, 5)
    assert lake.kv("PLAIN").keys() == ["a", "b.c", "x", "y"]
    assert kv.status().as_json() | {"bytes": 0} == {
        "bucket": "PLAIN",
        "stream": "KV_PLAIN",
        "values": 5,
        "bytes": 0,
        "keys": 4,
        "history": 5,
        "ttl_ns": None,
        "limit_marker_ttl_ns": None,
        "max_bytes": None,
        "max_value_size": None,
        "mirrors": None,
        "format": lake.format,
    }


def test_a_write_that_expects_another_revision_changes_nothing(any_lake: Lake) -> None:
    lake = any_lake
    kv = lake.kv("PLAIN")
    first = kv.put("a", b"1")
    second = kv.update("a", b"2", first)
    for act in (
        lambda: kv.update("a", b"x", first),
        lambda: kv.delete("a", first),
        lambda: kv.purge("a", first),
    ):
        error = refused(RevisionError, act)
        assert isinstance(error, RevisionError)
        assert (error.expected, error.actual, error.exit_code) == (first, second, 7)
        assert "'a' is at revision 2, and 1 was expected" in str(error)
    assert "has no revision" in str(refused(RevisionError, lambda: kv.delete("nobody", 1)))
    exists = refused(KeyExistsError, lambda: kv.create("a", b"x"))
    assert isinstance(exists, KeyExistsError)
    assert exists.actual == second
    refused(RevisionError, lambda: kv.update("a", b"x", 0))
    assert [entry.revision for entry in kv.history("a")] == [first, second]
    assert kv.delete("a", second) == 3
    assert kv.update("new", b"", 0) == 4


def test_a_deleted_key_is_created_again_and_a_purged_one_has_no_past(lake: Lake) -> None:
    kv = lake.kv("PLAIN")
    kv.put("a", b"1")
    kv.delete("a")
    assert "is deleted" in str(refused(MissingKeyError, lambda: kv.get("a")))
    assert kv.keys() == []
    assert kv.create("a", b"2") == 3
    assert brief(kv.history("a")) == [
        ("a", 1, "put", b"1"),
        ("a", 2, "delete", b""),
        ("a", 3, "put", b"2"),
    ]
    refused(MissingKeyError, lambda: kv.get("a", revision=2))
    assert kv.purge("a", 3) == 4
    assert brief(kv.history("a")) == [("a", 4, "purge", b"")]
    assert kv.create("a", b"3") == 5
    assert kv.get("a").value == b"3"


def test_history_is_what_a_pass_would_leave(lake: Lake) -> None:
    kv = lake.kv("ONE")
    for number in range(3):
        kv.put("a", str(number))
    assert brief(kv.history("a")) == [("a", 3, "put", b"2")]
    refused(MissingKeyError, lambda: kv.get("a", revision=2))
    [outcome] = lake.warehouse().apply(["KV_ONE"])
    assert outcome.value is not None
    assert outcome.value.removed_messages == 2
    assert brief(lake.kv("ONE").history("a")) == [("a", 3, "put", b"2")]


def test_an_expired_value_is_absent_whether_a_pass_has_run_or_not(lake: Lake) -> None:
    kv = lake.kv("SHORT")
    kv.put("old", b"1")
    lake.now_ns += 59 * MINUTE
    kv.create("own", b"2", ttl="30s")  # no shorter than the markers
    stays = kv.put("stays", b"3")
    lake.now_ns += MINUTE
    assert kv.keys() == ["stays"]
    refused(MissingKeyError, lambda: kv.get("old"))
    refused(MissingKeyError, lambda: kv.get("own"))
    refused(MissingKeyError, lambda: kv.history("own"))
    assert [entry.key for entry in kv.watch().poll()] == ["stays"]
    error = refused(RevisionError, lambda: kv.update("old", b"x", 1))
    assert isinstance(error, RevisionError)
    assert error.actual == 0
    assert kv.create("own", b"4") == stays + 1
    lake.warehouse().apply(["KV_SHORT"])
    assert lake.kv("SHORT").keys() == ["own", "stays"]
    # A pass leaves a marker for the removed key.
    assert [entry.operation for entry in lake.kv("SHORT").history("old")] == ["purge"]
    lake.now_ns += HOUR
    assert lake.kv("SHORT").keys() == []


def test_an_older_value_comes_back_when_a_newer_one_expires(lake: Lake) -> None:
    """As on a server; `SHORT` keeps three values of a key."""
    kv = lake.kv("SHORT")
    kv.put("a", b"1")
    kv.delete("a")
    kv.create("a", b"2", ttl="2m")
    kv.put("b", b"3")
    assert kv.get("a").value == b"2"
    lake.now_ns += 2 * MINUTE
    assert "is deleted" in str(refused(MissingKeyError, lambda: kv.get("a")))
    assert kv.keys() == ["b"]
    assert [entry.operation for entry in kv.history("a")] == ["put", "delete"]
    assert kv.update("a", b"4", 2) == 5


def test_a_watch_tells_what_is_there_and_then_what_comes(lake: Lake) -> None:
    kv = lake.kv("PLAIN")
    kv.put_all([("a", b"1"), ("b", b"2"), ("a", b"3")])
    last, every = kv.watch(), lake.kv("PLAIN").watch("a", include_history=True)
    new, puts = kv.watch(updates_only=True), kv.watch(ignore_deletes=True)
    later = kv.watch(resume_from=2)
    assert brief([*last.poll()]) == [("b", 2, "put", b"2"), ("a", 3, "put", b"3")]
    assert [entry.delta for entry in kv.watch().poll()] == [1, 0]
    assert brief([*every.poll()]) == [("a", 1, "put", b"1"), ("a", 3, "put", b"3")]
    assert [*new.poll()] == []
    assert len([*puts.poll()]) == 2
    assert [entry.revision for entry in later.poll()] == [2, 3]
    kv.put("a", b"4")
    kv.delete("b")
    kv.put("b", b"6")
    coming = [("a", 4, "put", b"4"), ("b", 5, "delete", b""), ("b", 6, "put", b"6")]
    assert brief([*last.poll()]) == brief([*new.poll()]) == coming
    assert brief([*every.poll()]) == coming[:1]
    assert brief([*puts.poll()]) == [coming[0], coming[2]]
    assert [*last.poll()] == []
    refused(UsageError, lambda: kv.watch(updates_only=True, resume_from=1))


def test_deleted_keys_are_purged_and_young_deletions_stay_alone(lake: Lake) -> None:
    kv = lake.kv("PLAIN")
    kv.put_all([("old", b"1"), ("young", b"2"), ("stays", b"3")])
    kv.delete("old")
    lake.now_ns += 30 * MINUTE
    kv.delete("young")
    kv.delete("stays")
    kv.put("stays", b"7")
    report = kv.purge_deletes().apply()
    assert (report.removed_messages, report.by_rule) == (3, {"purge": 3})
    after = lake.kv("PLAIN")
    refused(MissingKeyError, lambda: after.history("old"))
    assert [entry.operation for entry in after.history("young")] == ["delete"]
    assert [entry.operation for entry in after.history("stays")] == ["put", "delete", "put"]
    lake.warehouse().undo(report.run)
    assert [entry.operation for entry in lake.kv("PLAIN").history("old")] == ["put", "delete"]
    assert lake.kv("PLAIN").purge_deletes(older_than=0).apply().removed_messages == 4


def test_a_mirror_is_read_and_not_written(lake: Lake) -> None:
    lake.kv("PLAIN").put("a", b"1")
    lake.warehouse().mirror(["KV_COPY"])
    copy = lake.kv("COPY")
    assert brief(copy.entries()) == [("a", 1, "put", b"1")]
    assert copy.keys("a") == ["a"]
    assert "it mirrors KV_PLAIN" in str(refused(RefusedError, lambda: copy.put("a", b"2")))


def test_a_full_bucket_takes_no_more_and_says_so(lake: Lake) -> None:
    kv = lake.kv("SMALL")
    assert "10054" in str(refused(RefusedError, lambda: kv.put("a", b"x" * 60)))
    kv.put("a", b"x" * 40)
    kv.put("b", b"x" * 40)
    assert "maximum bytes exceeded" in str(refused(RefusedError, lambda: kv.put("c", b"x" * 40)))
    assert kv.put("a", b"y" * 40) == 3


def test_a_deletion_may_expect_that_there_is_no_value_yet(lake: Lake) -> None:
    kv = lake.kv("PLAIN")
    assert kv.delete("none", revision=0) == 1
    assert kv.purge("neither", revision=0) == 2
    assert "is at revision 1, and 0 was expected" in str(
        refused(RevisionError, lambda: kv.delete("none", revision=0))
    )
    said = str(refused(UsageError, lambda: kv.purge("none", revision=-1)))
    assert (
        said == "revision -1 is not valid: give one from 1 on, 0 for a key without one, or omit it"
    )


def test_a_value_that_is_too_large_is_refused_before_its_revision(lake: Lake) -> None:
    assert "10054" in str(refused(RefusedError, lambda: lake.kv("SMALL").update("a", "x" * 300, 7)))


def test_a_lock_has_one_holder_and_is_renewed_and_released(lake: Lake) -> None:
    kv = lake.kv("LOCKS")
    with kv.lock("nightly") as lock:
        held = lock.revision
        lock.check()
        rival = lake.kv("LOCKS").lock("nightly", wait="0s")
        assert "lock 'nightly' is held by" in str(refused(BusyError, rival.__enter__))
    refused(MissingKeyError, lambda: kv.get("nightly"))
    with kv.lock("nightly") as lock:
        assert lock.revision > held


def test_a_late_release_frees_nobody_else_s_lock(any_lake: Lake) -> None:
    lake = any_lake
    kv = lake.kv("LOCKS")
    first = kv.lock("nightly").__enter__()
    lake.now_ns += HOUR
    with lake.kv("LOCKS").lock("nightly", wait="0s") as second:
        pass
    other = lake.kv("LOCKS").create("nightly", b"third")
    lost = refused(LockLostError, lambda: first.__exit__(None, None, None))
    assert "another process may hold it since" in str(lost)
    assert other > second.revision
    assert kv.get("nightly").value == b"third"


def test_a_lock_is_lost_to_its_holder_whose_machine_was_suspended(
    any_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = any_lake
    lock = lake.kv("LOCKS").lock("nightly").__enter__()
    awake = time.clock_gettime_ns
    # CLOCK_MONOTONIC does not advance meanwhile.
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: awake(clock) + HOUR)
    lake.now_ns += HOUR
    with lake.kv("LOCKS").lock("nightly", wait="0s"):
        lost = refused(LockLostError, lock.check)
        assert str(lost) == (
            f"bucket LOCKS: lock 'nightly' was lost at revision {lock.revision}: it was not renewed in time; another "
            "process may hold it since; check the work done meanwhile before repeating it"
        )
    refused(LockLostError, lambda: lock.__exit__(None, None, None))


def test_rivals_that_commit_first_cost_a_lock_time_and_nothing_else(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = count()

    def loses_twice(write: Any) -> Any:
        def written(*arguments: Any, **keywords: Any) -> Any:
            if next(busy) % 3 < 2:
                raise BusyError("other writers committed first")
            return write(*arguments, **keywords)

        return written

    kv = lake.kv("LOCKS")
    for act in ("create", "delete"):
        monkeypatch.setattr(BucketWriter, act, loses_twice(getattr(BucketWriter, act)))
    with kv.lock("nightly", wait="1m"):
        assert next(busy) == 3
    assert [entry.operation for entry in kv.history("nightly")][-1] == "delete"
    said = str(refused(BusyError, kv.lock("nightly", wait="0s").__enter__))
    assert said == "other writers committed first"


def test_a_lock_without_an_end_is_refused(lake: Lake) -> None:
    assert "its values never expire" in str(refused(UsageError, lambda: lake.kv("PLAIN").lock("a")))
    said = str(refused(UsageError, lambda: lake.kv("LOCKS").lock("a", ttl="30s")))
    assert "a lock with a ttl of 30s would expire there after 1h" in said
    said = str(refused(UsageError, lambda: lake.kv("SHORT").lock("a", ttl="30s")))
    assert "would expire there after 1m" in said
    lake.kv("SHORT").lock("a", ttl="2m")


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "é", "a*", ">"])
def test_what_is_no_key_is_refused(tmp_path: Path, key: str) -> None:
    kv = Lake(str(tmp_path), "parquet").kv("ANY")
    for act in (lambda: kv.get(key), lambda: kv.put(key, b""), lambda: kv.history(key)):
        assert "is not a key" in str(refused(UsageError, act))


def test_a_topic_is_no_bucket(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text("topics: [{name: KV_T}]\n")
    warehouse = open_warehouse(tmp_path)
    assert "has no keys" in str(refused(UsageError, lambda: warehouse.kv("T")))


def test_a_dropped_bucket_begins_anew(lake: Lake) -> None:
    kv = lake.kv("PLAIN")
    watcher = kv.watch()
    kv.put("a", b"1")
    assert [entry.revision for entry in watcher.poll()] == [1]
    lake.warehouse().stream("KV_PLAIN").drop().apply()
    refused(MissingKeyError, lambda: kv.get("a"))
    assert "it was dropped during" in str(refused(UsageError, lambda: [*watcher.poll()]))
    assert kv.create("a", b"2") == 1


def test_digests_that_are_too_many_to_hold_are_read_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest_index, "MOST_IN_MEMORY", 2)
    kv = lake.kv("PLAIN")
    kv.put_all({"a": b"1", "b": b"2", "c": b"3"})
    kv.put("a", b"4")
    assert (kv.get("a").value, kv.get("b").value) == (b"4", b"2")
    assert kv.update("a", b"5", 4) == 5


def test_what_is_held_of_digests_follows_the_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_rows, "_MOST_CHUNKS", 2)
    kv = lake.kv("PLAIN")
    for number in range(9):
        kv.put(f"k{number % 2}", str(number))
        assert kv.get(f"k{number % 2}").text == str(number)
    kv.stream.compact().apply()
    assert [kv.get(key).text for key in ("k0", "k1")] == ["8", "7"]
    assert len(kv.stream.opened.digests._rows._slots) < 9
    assert [entry.text for entry in kv.history("k0")] == ["0", "2", "4", "6", "8"]


def test_threads_share_a_bucket(tmp_path: Path) -> None:
    kv = laid(str(tmp_path), "parquet").kv("PLAIN")

    def count(_: int) -> int:
        while True:
            try:
                entry = kv.get("n")
                return kv.update("n", str(int(entry.text) + 1), entry.revision)
            except RevisionError:
                continue

    kv.put("n", "0")
    with ThreadPoolExecutor(4) as pool:
        revisions = sorted(pool.map(count, range(12)))
    assert revisions == list(range(2, 14))
    assert kv.get("n").text == "12"
