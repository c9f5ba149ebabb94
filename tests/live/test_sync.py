"""Syncs with a real server: byte for byte as a backup, over restores, purges, limits and kills."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.warehouse import Warehouse
from retention.core.units import SECOND
from retention.errors import RefusedError
from retention.ingest.sync.session import SyncOptions
from tests.support.nats_oracle import Nats, server
from tests.support.sandboxes import opened

pytestmark = pytest.mark.live

BLOCKS: list[bytes] = [
    b"",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\na: \r\nA:  lead\r\nA: trail \r\nB: c: d\r\n\r\n",
    b"NATS/1.0\r\nX: \xff\xfe\x80\r\nX-\xc3\xa9: \xc3\xa9\r\n\r\n",
    b"NATS/1.0\r\nA:b\r\nA:  c\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\nX: y\r\n\r\n",
    b"NATS/1.0 204 EOB\r\n\r\n",
    b"NATS/1.0 404 No Messages\r\n\r\n",
    b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n",
    b"NATS/1.0 409 Batch Completed\r\n\r\n",
    b"NATS/1.0\r\nStatus: 404\r\n\r\n",
    b"NATS/1.0\r\nNats-Sequence: 77\r\nNats-Stream: OTHER\r\nNats-Num-Pending: 0\r\n\r\n",
    b"NATS/1.0\r\nNats-TTL: never\r\n\r\n",
    b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n",
    b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: i1\r\n\r\n",
    b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\nA: b\n\n",
    b"NATS/1.0\r\nA: " + b"x" * 60_000 + b"\r\n\r\n",
]
"""Header blocks that readers of the protocol get wrong."""
PAYLOADS = (b"", b"x", bytes(range(256)))
ODD: dict[str, Any] = {
    "allow_msg_ttl": True,
    "allow_rollup_hdrs": True,
    "subject_delete_marker_ttl": 3_600 * SECOND,
    "duplicate_window": SECOND,
}
ANY = SyncOptions(max_missed=10**9)


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server("max_payload: 64MB\n") as started:
        yield started


@pytest.fixture
def stream(nats: Nats, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new stream, with ten messages on three subjects."""
    name = f"S{abs(hash(request.node.name)) % 10**9}"
    create(nats, name)
    nats.publish([(f"{name}.{at % 3}", b"x%d" % at, {"A": "b"}) for at in range(10)])
    yield name
    for each in (f"{name}_ARCHIVE", name):
        if each in nats.request("STREAM.NAMES", {})["streams"]:
            nats.delete(each)


def create(nats: Nats, name: str, **config: Any) -> None:
    nats.request(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})


def copying(folder: Path, nats: Nats, name: str, **config: Any) -> Warehouse:
    """A warehouse with a copy of a server's stream."""
    synced = {"name": "COPY", "sync": {"server": nats.url, "stream": name}, **config}
    return opened(folder, synced)


def held(warehouse: Warehouse) -> pa.Table:
    """The messages of a copy, in order."""
    return pa.concat_tables(warehouse.stream("COPY").messages()).drop_columns(
        ["partition", "segment"]
    )


def assert_equal(warehouse: Warehouse, nats: Nats, name: str, folder: Path) -> None:
    """The copy equals the import of a backup that the server makes now."""
    nats.snapshot(name, folder / "now.arc")
    imported = opened(folder / "imported", {"name": "COPY", "subjects": [">"], "no_ack": True})
    imported.new_stream("COPY").import_nats_backup(folder / "now.arc")
    assert held(warehouse).equals(held(imported))


def test_odd_messages_are_those_of_a_backup_byte_for_byte(nats: Nats, tmp_path: Path) -> None:
    create(nats, "ODD", **ODD)
    sent = [
        (f"ODD.{row}.{column}", payload, block)
        for row, block in enumerate(BLOCKS)
        for column, payload in enumerate(PAYLOADS)
    ]
    answers = nats.publish_blocks(sent)
    stored = [answer for answer in answers if "error" not in answer]
    assert len(stored) >= 62
    nats.publish_blocks([("ODD.m", b"", b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n")])
    time.sleep(2.2)  # a marker of the server replaces it
    warehouse = copying(tmp_path, nats, "ODD", allow_msg_ttl=True)
    (done,) = warehouse.sync()
    assert done.error is None
    assert done.value is not None
    assert done.value.messages == nats.info("ODD")["state"]["messages"]
    assert_equal(warehouse, nats, "ODD", tmp_path)


@pytest.mark.every_case
@pytest.mark.parametrize(("megabytes", "storage"), [(8, "file"), (31, "file"), (60, "memory")])
def test_large_messages_come_whole(
    nats: Nats, tmp_path: Path, megabytes: int, storage: str
) -> None:
    """A file store accepts up to 32 MiB."""
    name = f"LARGE{megabytes}"
    create(nats, name, storage=storage)
    nats.publish([(f"{name}.{at}", bytes([at]) * (megabytes << 20), None) for at in range(2)])
    warehouse = copying(tmp_path, nats, name, storage=storage)
    assert warehouse.stream("COPY").sync().messages == 2
    rows = held(warehouse)
    assert rows["seq"].to_pylist() == [1, 2]
    for at, payload in enumerate(rows["payload"]):
        assert payload.as_py() == bytes([at]) * (megabytes << 20)
    nats.delete(name)


def test_a_restored_stream_goes_on_and_one_made_anew_is_refused(
    nats: Nats, stream: str, tmp_path: Path
) -> None:
    warehouse = copying(tmp_path, nats, stream)
    copy = warehouse.stream("COPY")
    assert copy.sync().messages == 10
    info = nats.snapshot(stream, tmp_path / "kept.arc")
    nats.delete(stream)
    nats.restore_archive(info["config"], info["state"], tmp_path / "kept.arc")
    nats.publish([(f"{stream}.1", b"after", None)])
    done = copy.sync()
    assert (done.messages, done.is_restored) == (1, True)
    assert_equal(warehouse, nats, stream, tmp_path)
    time.sleep(2.5)  # a server that makes a restored stream anew at once brings old messages back
    nats.delete(stream)
    create(nats, stream)
    nats.publish([(f"{stream}.1", b"other", None)] * 50)
    with pytest.raises(RefusedError, match="made anew"):
        copy.sync()


def test_what_a_purge_took_first_is_refused_and_then_accepted(
    nats: Nats, stream: str, tmp_path: Path
) -> None:
    warehouse = copying(tmp_path, nats, stream)
    copy = warehouse.stream("COPY")
    copy.sync()
    nats.publish([(f"{stream}.1", b"new", None)] * 8)
    nats.request(f"STREAM.MSG.DELETE.{stream}", {"seq": 17})
    nats.request(f"STREAM.PURGE.{stream}", {"seq": 14})
    with pytest.raises(RefusedError, match=r"missed: 11 to 13 \(3\)"):
        copy.sync()
    done = copy.sync(SyncOptions(max_missed=3))
    assert (done.messages, done.missed.count, done.position) == (4, 3, 18)
    nats.request(f"STREAM.PURGE.{stream}", {})
    assert copy.sync().position == 18
    nats.publish([(f"{stream}.1", b"last", None)])
    assert copy.sync().messages == 1
    assert held(warehouse)["seq"].to_pylist() == [*range(1, 11), 14, 15, 16, 18, 19]


@pytest.mark.every_case
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_consumed_stream_is_copied_from_the_mirror_that_the_refusal_names(
    nats: Nats, stream: str, tmp_path: Path, retention: str
) -> None:
    nats.delete(stream)
    create(nats, stream, retention=retention)
    durable = {"durable_name": "worker", "ack_policy": "explicit"}
    nats.request(f"CONSUMER.CREATE.{stream}.worker", {"stream_name": stream, "config": durable})
    archive = f"{stream}_ARCHIVE"
    with pytest.raises(RefusedError, match=f"--mirror {stream}"):
        copying(tmp_path, nats, stream).stream("COPY").sync()
    nats.request(
        f"STREAM.CREATE.{archive}", {"name": archive, "mirror": {"name": stream}, "storage": "file"}
    )
    nats.publish([(f"{stream}.1", b"work", None)] * 4)
    until = time.monotonic() + 10
    while nats.info(archive)["state"]["messages"] < 4 and time.monotonic() < until:
        time.sleep(0.05)
    warehouse = copying(tmp_path / "archive", nats, archive)
    assert warehouse.stream("COPY").sync().messages == 4
    assert_equal(warehouse, nats, archive, tmp_path)


def test_a_followed_stream_is_a_second_behind_until_it_is_sealed(
    nats: Nats, stream: str, tmp_path: Path
) -> None:
    warehouse = copying(tmp_path, nats, stream)
    outcomes: list[Any] = []
    follower = threading.Thread(target=lambda: outcomes.append(warehouse.follow("COPY")))
    follower.start()
    for at in range(5):
        nats.publish([(f"{stream}.{at}", b"live", None)] * 20)
        time.sleep(0.3)
    info = nats.info(stream)
    nats.update(info["config"] | {"sealed": True})
    follower.join(30)
    assert not follower.is_alive()
    done = outcomes[0].value
    assert (done.messages, done.ended, done.behind) == (110, "sealed", 0)
    assert done.commits >= 2
    assert_equal(warehouse, nats, stream, tmp_path)


def test_a_followed_stream_goes_on_after_a_gap_at_its_end(
    nats: Nats, stream: str, tmp_path: Path
) -> None:
    warehouse = copying(tmp_path, nats, stream)
    last = nats.info(stream)["state"]["last_seq"]
    nats.request(f"STREAM.MSG.DELETE.{stream}", {"seq": last})
    outcomes: list[Any] = []
    follower = threading.Thread(target=lambda: outcomes.append(warehouse.follow("COPY")))
    follower.start()
    time.sleep(2.5)
    nats.publish([(f"{stream}.late", b"live", None)])
    time.sleep(1.5)
    nats.update(nats.info(stream)["config"] | {"sealed": True})
    follower.join(30)
    assert not follower.is_alive()
    assert outcomes[0].value is not None, outcomes[0].sentence
    assert (outcomes[0].value.ended, outcomes[0].value.behind) == ("sealed", 0)
    assert_equal(warehouse, nats, stream, tmp_path)


def test_consumers_and_the_configuration_come_along(
    nats: Nats, stream: str, tmp_path: Path
) -> None:
    durable = {"durable_name": "worker", "ack_policy": "none", "deliver_policy": "all"}
    nats.request(f"CONSUMER.CREATE.{stream}.worker", {"stream_name": stream, "config": durable})
    nats.update(nats.info(stream)["config"] | {"max_msgs": 1000})
    warehouse = copying(tmp_path, nats, stream, retention="interest")
    along = SyncOptions(with_config=True, with_consumers=True)
    (outcome,) = warehouse.sync(None, along)
    assert outcome.value is not None, outcome.sentence
    (note,) = outcome.value.notes
    assert "max_msgs is unlimited here and 1000 on the server" in note
    assert "retention is interest here and limits on the server" in note
    (worker,) = warehouse.stream("COPY").consumers.list()
    assert (worker.name, worker.ack_floor["stream_seq"]) == ("worker", 0)
    assert warehouse.stream("COPY").plan().plan.removed_messages == 0
