"""Consumers on an object store: rivals are serialized, no change is lost, and releases respect them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from retention.api.warehouse import open_warehouse
from retention.consumers.state import new_state
from retention.core.counters import Counters
from retention.errors import DamagedError
from retention.storage import files
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from retention.stores.sidecar.versioned_delta import CHECKPOINT_EVERY, CommitVersions
from retention.stores.sidecar.versioned_document import versions_in
from tests.support.consuming import noted, settled_once, start
from tests.support.sandboxes import NOW, lines

BILLING = ConsumerRecord("billing", {"durable_name": "billing"}, new_state(1), revision=1)


def test_of_rivals_one_creates_the_next_version(bucket: str) -> None:
    mine, theirs = (versions_in(f"{bucket}/consumers/billing") for _ in range(2))
    assert mine.newest() is None
    assert theirs.add(1, b"first")
    assert not mine.add(1, b"first of mine")
    assert mine.add(2, "zwölf".encode())
    assert not theirs.add(2, b"late")
    assert not theirs.add(4, b"early")
    location, number, content = theirs.newest() or ("", 0, b"")
    assert (number, content.decode()) == (2, "zwölf")
    assert location.endswith(f"{2:020d}.json")


def test_many_versions_are_put_together(bucket: str) -> None:
    versions = versions_in(f"{bucket}/consumers/billing")
    for number in range(1, CHECKPOINT_EVERY + 3):
        assert versions.add(number, b"%d" % number)
        versions.tidy()
    log = files.names(f"{bucket}/consumers/billing/_delta_log")
    assert any(name.endswith(".checkpoint.parquet") for name in log)
    assert (versions.newest() or ("", 0, b""))[2] == b"%d" % (CHECKPOINT_EVERY + 2)


@pytest.mark.parametrize("name", ["billing", "räume", "A%20=x"])
def test_records_come_back_and_rivals_are_built_upon(bucket: str, name: str) -> None:
    table, rival = ConsumerTable(bucket), ConsumerTable(bucket)
    table.update(name, lambda _: replace(BILLING, consumer=name))
    first = [1]

    def change(found: ConsumerRecord | None) -> ConsumerRecord:
        assert found is not None
        if first:
            first.clear()
            rival.update(name, lambda theirs: replace(theirs or BILLING, folded={"theirs": 1}))
        return replace(found, folded={**found.folded, "mine": 2})

    table.update(name, change)
    [record] = table.live(Counters())
    assert (record.consumer, record.version) == (name, 3)
    assert record.folded == {"theirs": 1, "mine": 2}


def test_damage_is_refused_by_name(bucket: str) -> None:
    table = ConsumerTable(bucket)
    table.update("billing", lambda _: BILLING)
    place = f"{bucket}/consumers/billing/_delta_log/{1:020d}.json"
    said = files.read_bytes(place) or b""
    for wrong in (b"", said.replace(b'\\"revision\\":1', b'\\"revision\\":2')):
        files.replace(place, wrong)
        with pytest.raises(DamagedError, match=r"00001\.json"):
            table.read("billing")


def test_a_release_on_an_object_store_goes_by_its_consumers(bucket: str, tmp_path: Path) -> None:
    listed = {"durable_name": "late", "ack_policy": "explicit", "deliver_policy": "new"}
    stream = {
        "name": "ORDERS",
        "subjects": ["orders.>"],
        "retention": "interest",
        "consumers": [listed],
    }
    path = tmp_path / "retention.yaml"
    path.write_text(json.dumps({"warehouse": bucket, "streams": [stream]}))
    warehouse = open_warehouse(path, engine="local", clock=lambda: NOW)
    orders = warehouse.new_stream("ORDERS")
    orders.publish([line.encode() for line in lines(5)])
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    assert outcome.value.by_rule == {"interest": 5}
    assert orders.opened.store.snapshot().counters.consumers == 1
    [record] = ConsumerTable(orders.opened.root).live(Counters())
    assert (record.counted, record.state) == (True, new_state(6))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["acks.jsonl", "logs", "table"])
def test_logs_on_an_object_store_are_folded(bucket: str, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "retention.yaml"
    path.write_text(json.dumps({"warehouse": bucket, "streams": [{"name": "ORDERS"}]}))
    orders = open_warehouse(path, engine="local", clock=lambda: NOW).new_stream("ORDERS")
    orders.publish(lines(5, "ORDERS"))
    orders.consumers.add({"durable_name": "all", "ack_policy": "explicit"})
    replies = [
        {"subject": f"$JS.ACK.ORDERS.all.1.{seq}.{seq}.1790000000000000000.0"} for seq in (1, 2, 3)
    ]
    location = f"{bucket}/{kind}"
    if kind == "table":
        write_deltalake(
            location, pa.Table.from_pylist(replies), storage_options=files.storage_options()
        )
    else:
        file = location if "." in kind else f"{location}/1.jsonl"
        files.replace(file, "".join(json.dumps(one) + "\n" for one in replies).encode())
    [done] = orders.consumers.fold(location)
    assert (done.log, done.rows) == (location, 3)
    [again] = orders.consumers.fold(location)
    assert again.before == 3
    assert orders.consumers.info("all").ack_floor["stream_seq"] == 3


@pytest.mark.thorough
def test_two_processes_share_a_consumer_and_settle_each_message_once(
    bucket: str, tmp_path: Path
) -> None:
    billing = {"durable_name": "billing", "ack_policy": "explicit"}
    stream = {"name": "ORDERS", "subjects": ["s.*"], "retention": "workqueue", "no_ack": False}
    config = {"warehouse": bucket, "streams": [stream | {"consumers": [billing]}]}
    (tmp_path / "retention.yaml").write_text(json.dumps(config))
    warehouse = open_warehouse(tmp_path / "retention.yaml", engine="local")
    orders = warehouse.new_stream("ORDERS")
    messages, diaries = 120, ["one", "two"]
    orders.publish([json.dumps({"subject": f"s.{seq % 3}"}) for seq in range(messages)])
    orders.consumer("billing")
    workers = start(tmp_path, diaries, 30, 0.1)
    assert [worker.wait(300) for worker in workers] == [0, 0]
    settled_once(tmp_path, diaries, messages)
    assert all(noted(tmp_path / diary) for diary in diaries)
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    assert outcome.value.by_rule == {"workqueue": messages}


@pytest.mark.parametrize("number", range(4))
def test_of_many_first_versions_of_one_document_one_is_kept(tmp_path: Path, number: int) -> None:
    """On a disk, where rivals are closer in time than on an object store."""
    place, at_once = str(tmp_path / str(number)), Barrier(8)

    def add(rival: int) -> bool:
        at_once.wait()
        return CommitVersions(place).add(1, str(rival).encode())

    with ThreadPoolExecutor(8) as threads:
        added = [*threads.map(add, range(8))]
    assert added.count(True) == 1
    newest = CommitVersions(place).newest()
    assert newest is not None
    assert newest[1:] == (1, str(added.index(True)).encode())
