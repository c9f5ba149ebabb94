"""Delta streams on an S3-compatible object store, a moto server in its own process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from threading import Event

import polars as pl
import pyarrow as pa
import pytest

from retention.api.warehouse import open_warehouse
from retention.core.read_count import ReadCount
from retention.errors import BusyError, ConflictError, RefusedError, UsageError
from retention.ports import Store
from retention.storage import files, objects
from retention.stores import StoreSettings, stream_table
from retention.stores.lease import lease
from tests.contract.conftest import NOW_NS
from tests.contract.streams import append, appending, latest, removing, rows, sequences, staged


@pytest.fixture
def root(bucket: str) -> str:
    return f"{bucket}/streams/ORDERS"


def opened(root: str) -> Store:
    return stream_table(root, "ORDERS", StoreSettings(), lambda: NOW_NS).store()


def test_a_stream_lives_on_an_object_store(root: str) -> None:
    store = opened(root)
    assert not store.exists()
    store.create()
    append(store, range(1, 11))
    append(store, range(11, 21), segment=11)
    snapshot, found = latest(store)
    after = staged(store, rows(range(4, 11)))
    store.commit(removing(found.slice(0, 1), after, run="r1"), snapshot)
    again = opened(root)
    assert again.inventory(again.snapshot()).read == ReadCount()
    assert sequences(again) == list(range(4, 21))
    assert again.find_commit("r1") == 3
    assert again.subject_counts(after).num_rows == 3
    seen = pl.scan_delta(f"{root}/messages", storage_options=files.storage_options())
    assert seen.select(pl.col("seq").sum()).collect().item() == sum(range(4, 21))
    again.commit(removing(after, found.slice(0, 1), run="undo"), again.snapshot())
    assert sequences(again) == list(range(1, 21))


def test_of_two_appends_on_an_object_store_one_is_refused(root: str) -> None:
    store = opened(root)
    store.create()
    snapshot = store.snapshot()
    mine, theirs = staged(store, rows(range(1, 6))), staged(store, rows(range(1, 4)))
    opened(root).commit(appending(theirs, 4), snapshot)
    with pytest.raises(ConflictError):
        store.commit(appending(mine, 6), snapshot)
    store.discard(mine["path"].to_pylist())
    assert files.length(f"{root}/messages/{mine['path'][0].as_py()}") is None
    assert sequences(store) == [1, 2, 3]


def test_a_living_holder_keeps_its_lease_and_a_dead_one_loses_it(root: str) -> None:
    with lease(root, "maintenance", lambda: NOW_NS, expiry_s=1.2):
        with (
            pytest.raises(BusyError, match="held by process"),
            lease(root, "maintenance", lambda: NOW_NS, expiry_s=1.2),
        ):
            pass
        assert files.names(f"{root}/_retention") == ["maintenance.lease"]
    assert files.names(f"{root}/_retention") == []
    dead = json.dumps({"pid": 1, "host": "gone", "since_ns": 0, "token": "dead"})
    files.replace(f"{root}/_retention/maintenance.lease", dead.encode())
    with lease(root, "maintenance", lambda: NOW_NS, expiry_s=1.2):
        pass
    assert files.names(f"{root}/_retention") == []


@pytest.mark.parametrize(("before", "after"), [(b"long" * 9, b"short"), (b"short", b"long" * 9)])
def test_a_file_that_is_replaced_while_arrow_reads_it_is_read_whole(
    bucket: str, monkeypatch: pytest.MonkeyPatch, before: bytes, after: bytes
) -> None:
    place, opened, meanwhile = f"{bucket}/a.json", files.open_input, [after]
    files.replace(place, before)

    def opened_late(location: str) -> pa.NativeFile:
        source = opened(location)
        if meanwhile:
            files.replace(place, meanwhile.pop())
        return source

    monkeypatch.setattr(objects, "only_arrow_finds_credentials", lambda: True)
    monkeypatch.setattr(files, "open_input", opened_late)
    assert files.read_bytes(place) == after


def test_a_file_that_is_replaced_again_and_again_is_always_read_whole(bucket: str) -> None:
    place, contents, is_over = f"{bucket}/a.json", (b"long" * 9, b"short"), Event()
    files.replace(place, contents[0])

    def replace() -> None:
        for content in cycle(contents):
            if is_over.is_set():
                return
            files.replace(place, content)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(replace)
        try:
            assert {files.read_bytes(place) for _ in range(50)} <= set(contents)
        finally:
            is_over.set()


def test_names_that_need_escapes_are_refused_on_object_stores() -> None:
    with pytest.raises(UsageError, match="percent sign"):
        stream_table("s3://lake/streams/A%2EB", "A.B", StoreSettings(), lambda: NOW_NS)


def test_other_object_stores_are_refused() -> None:
    with pytest.raises(UsageError, match="gs://"):
        stream_table("gs://lake/streams/A", "A", StoreSettings(), lambda: NOW_NS)


@pytest.mark.parametrize(
    "path", ["../../B/x.parquet", "partition=0/../../../B/x.parquet", "s3://b/x"]
)
def test_a_log_that_names_a_path_outside_is_refused(root: str, path: str) -> None:
    store = opened(root)
    store.create()
    append(store, range(1, 4))
    entry = f"{root}/messages/_delta_log/{1:020d}.json"
    content = (files.read_bytes(entry) or b"").decode()
    named = content.partition('"path":"')[2].partition('"')[0]
    files.replace(entry, content.replace(named, path).encode())
    with pytest.raises(RefusedError, match="outside its directory"):
        opened(root).snapshot()


def test_an_instant_before_the_first_message_lets_nothing_go(bucket: str) -> None:
    stream = {"name": "ORDERS", "subjects": [">"], "no_ack": True, "max_age": "1s"}
    files.replace(f"{bucket}/retention.yaml", json.dumps({"streams": [stream]}).encode())
    warehouse = open_warehouse(bucket, engine="local", clock=lambda: NOW_NS)
    warehouse.new_stream("ORDERS").publish(
        ['{"subject": "a", "data": "x", "ts_ns": 1000000000000000000}']
    )
    stored = 10**18
    for instant in (0, stored - 1, stored, stored + 10**9):
        [outcome] = warehouse.apply(as_of=instant)
        assert outcome.value is not None, outcome.sentence
        assert outcome.value.removed_messages == (instant == stored + 10**9)
