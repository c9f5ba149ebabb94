"""A stream of a live server read in bulk: every message that it holds, once, as stored."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from retention.errors import RefusedError, UsageError
from retention.nats import pull as pulls
from retention.nats.connection import Connection
from retention.nats.settings import settings_of
from retention.nats.stream import RemoteStream, StoredMessage
from tests.support.nats_oracle import Message
from tests.support.nats_oracle import server as server_of_archives
from tests.support.nats_process import Admin, NatsProcess, admin, nats_process

pytestmark = pytest.mark.live

MIB = 1 << 20
MANY = 6_000
ANCHOR = {"name": "ANCHOR", "mirror": {"name": "NOWHERE"}}
"""A stream that keeps the server's directory of streams from being deleted after another's end."""
PAYLOADS = [b"", b"x", bytes(range(256)), b"thirteen char", b"\r\nMSG a 1 $JS.ACK.b 3\r\n"]
BLOCKS = [
    None,
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\na: \r\nA:  lead\r\nA: trail \r\nB: c: d\r\n\r\n",
    b"NATS/1.0\r\nX: \xff\xfe\x80\r\nX-\xc3\xa9: \xc3\xa9\r\n\r\n",
    b"NATS/1.0\r\nNats-Sequence: 77\r\nNats-Stream: OTHER\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\nA: b\n\n",
    b"NATS/1.0\r\nA: " + b"x" * 60_000 + b"\r\n\r\n",
]

LIKE_STATUSES = [
    b"NATS/1.0 \r\nA: b\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\nX: y\r\n\r\n",
    b"NATS/1.0 204 EOB\r\n\r\n",
    b"NATS/1.0 404 No Messages\r\n\r\n",
    b"NATS/1.0 408 Request Timeout\r\n\r\n",
    b"NATS/1.0 409 Consumer Deleted\r\n\r\n",
]
"""Blocks that look like control messages: a restored stream has them, though a server cuts the status when it stores a
published message."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    with nats_process(
        tmp_path_factory.mktemp("nats"), "max_payload: 64MB\nmax_pending: 64MB\n"
    ) as started:
        with admin(started.url) as one:
            one.api("STREAM.CREATE.ANCHOR", ANCHOR)
        yield started


@pytest.fixture
def broker(server: NatsProcess) -> Iterator[Admin]:
    with admin(server.url) as one:
        yield one


@pytest.fixture
def connection(server: NatsProcess) -> Iterator[Connection]:
    with Connection.open(settings_of(server.url, None, {})) as opened:
        yield opened


@pytest.fixture
def fresh(broker: Admin, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(**config: object) -> str:
        name = f"S{abs(hash(request.node.name))}"
        broker.create(name, **config)
        made.append(name)
        return name

    yield make
    for name in made:
        broker.api(f"STREAM.DELETE.{name}")


def sequences(batches: list[pa.Table]) -> list[int]:
    return [seq for batch in batches for seq in batch["seq"].to_pylist()]


def read(
    stream: RemoteStream, first: int = 1, batch: int = 1000, size: int = MIB
) -> list[pa.Table]:
    return list(stream.read(first, stream.info().last_seq, batch, size))


def test_odd_messages_come_byte_for_byte(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    for number, block in enumerate(BLOCKS):
        broker.publish(f"{name}.{number}.é", PAYLOADS, block)
    stream = RemoteStream(connection, name)
    rows = pa.concat_tables(read(stream)).to_pylist()
    assert len(rows) == len(BLOCKS) * len(PAYLOADS)
    stored = [stream.message(row["seq"]) for row in rows]
    assert [StoredMessage(**row) for row in rows] == stored
    expected = [(block, payload) for block in BLOCKS for payload in PAYLOADS]
    assert [(row["headers"], row["payload"]) for row in rows] == expected


def test_stored_headers_that_look_like_control_messages_are_messages() -> None:
    stored = [
        Message(seq, "S.a", 10**18 + seq, block, b"x") for seq, block in enumerate(LIKE_STATUSES, 1)
    ]
    with server_of_archives() as oracle, Connection.open(settings_of(oracle.url, None, {})) as one:
        oracle.restore("S", {}, stored)
        rows = pa.concat_tables(read(RemoteStream(one, "S"))).to_pylist()
    assert [Message(**row) for row in rows] == stored


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_gaps_stay_and_a_range_ends_where_it_was_told_to(
    broker: Admin, connection: Connection, fresh: Callable[..., str], storage: str
) -> None:
    name = fresh(storage=storage)
    broker.publish(f"{name}.a", [b"x"] * 30)
    for seq in (1, 7, 8, 20, 29, 30):
        broker.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})
    stream = RemoteStream(connection, name)
    kept = [seq for seq in range(1, 31) if seq not in (1, 7, 8, 20, 29, 30)]
    assert sequences(read(stream, batch=5)) == kept
    assert sequences(list(stream.read(7, 20, 4, MIB))) == [seq for seq in kept if 7 <= seq <= 20]
    assert sequences(list(stream.read(29, 30, 4, MIB))) == []
    info = stream.info(deleted=True)
    assert info.deleted.tolist() == [7, 8, 20, 29, 30]
    assert (info.first_seq, info.last_seq, info.messages) == (2, 30, 24)
    broker.api(f"STREAM.PURGE.{name}")
    assert read(stream) == []
    assert stream.info().num_deleted == 0


def test_batches_have_at_most_the_messages_and_bytes_that_were_asked_for(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x" * 1000] * MANY)
    stream = RemoteStream(connection, name)
    by_count = read(stream, batch=999, size=4 * MIB)
    assert [batch.num_rows for batch in by_count] == [999] * 6 + [6]
    by_size = read(stream, batch=MANY, size=100_000)
    assert max(batch.num_rows for batch in by_size) <= 100
    assert sequences(by_size) == sequences(by_count) == list(range(1, MANY + 1))


def test_a_message_larger_than_a_request_comes_too(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    sizes = [10, 20 * MIB, 11, 9 * MIB, 9 * MIB, 12]
    for size in sizes:
        broker.publish(f"{name}.a", [b"z" * size])
    batches = read(RemoteStream(connection, name), size=4 * MIB)
    assert [len(row["payload"]) for batch in batches for row in batch.to_pylist()] == sizes


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_is_restarted_in_the_middle_loses_and_doubles_nothing(
    server: NatsProcess,
    broker: Admin,
    connection: Connection,
    fresh: Callable[..., str],
    how: signal.Signals,
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x" * 300] * MANY)
    stream = RemoteStream(connection, name)
    read_ones: list[int] = []
    for number, batch in enumerate(stream.read(1, MANY, 500, MIB)):
        read_ones += batch["seq"].to_pylist()
        if number in (2, 5):
            server.restart(how)
    assert read_ones == list(range(1, MANY + 1))


def test_a_consumer_that_is_deleted_is_replaced(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x"] * MANY)
    seen: list[int] = []
    for batch in RemoteStream(connection, name).read(1, MANY, 1000, MIB):
        seen += batch["seq"].to_pylist()
        for consumer in broker.api(f"CONSUMER.NAMES.{name}")["consumers"] or []:
            broker.api(f"CONSUMER.DELETE.{name}.{consumer}")
    assert seen == list(range(1, MANY + 1))


def test_messages_that_are_removed_while_they_are_read_do_not_stop_the_reader(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x" * 100_000] * 400)
    batches = RemoteStream(connection, name).read(1, 400, 10, MIB)
    seen = next(batches)["seq"].to_pylist()
    broker.api(f"STREAM.PURGE.{name}")
    seen += sequences(list(batches))
    assert seen == list(range(1, len(seen) + 1))


def test_a_reader_that_sleeps_is_not_cut_off(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"z" * 100_000] * 1500)
    batches = RemoteStream(connection, name).read(1, 1500, 100, 64 * MIB)
    seen = next(batches)["seq"].to_pylist()
    time.sleep(3)
    seen += sequences(list(batches))
    assert seen == list(range(1, 1501))
    assert connection.losses == 0


def test_a_stream_made_anew_in_the_middle_is_refused(
    server: NatsProcess, broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x" * 1000] * MANY)
    batches = RemoteStream(connection, name).read(1, MANY, 500, MIB)
    next(batches)
    broker.api(f"STREAM.DELETE.{name}")
    broker.create(name)
    broker.publish(f"{name}.a", [b"y"] * MANY)
    with pytest.raises(RefusedError, match=f"stream {name} .* made anew, or restored"):
        list(batches)


def test_following_yields_what_came_and_an_empty_table_when_nothing_did(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    batches = RemoteStream(connection, name).follow(1, 100, MIB, 0.2)
    assert next(batches).num_rows == 0
    broker.publish(f"{name}.a", [b"x"] * 250)
    seen = [next(batches) for _ in range(3)]
    assert sequences(seen) == list(range(1, 251))
    assert seen[0].num_rows == 100
    assert next(batches).num_rows == 0
    broker.publish(f"{name}.a", [b"x"])
    assert sequences([next(batches), next(batches)]) == [251]
    batches.close()


def test_following_outlives_a_restart(
    server: NatsProcess, broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x"] * 3)
    batches = RemoteStream(connection, name).follow(1, 100, MIB, 0.2)
    seen = sequences([next(batches)])
    server.restart()
    with admin(server.url) as other:
        other.publish(f"{name}.a", [b"x"] * 3)
    while len(seen) < 6:
        seen += sequences([next(batches)])
    assert seen == [1, 2, 3, 4, 5, 6]
    batches.close()


def test_following_from_beyond_the_end_is_refused_as_the_server_would_skip(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x"] * 5)
    with pytest.raises(RefusedError, match="ends at sequence 5, and reading was to begin at 50"):
        next(RemoteStream(connection, name).follow(50, 10, MIB, 0.1))


def test_a_reader_leaves_no_consumer_and_no_subscription(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x"] * MANY)
    stream = RemoteStream(connection, name)
    read(stream)
    batches = stream.read(1, MANY, 10, MIB)
    next(batches)
    assert len(stream.consumers()) == 1
    batches.close()
    assert stream.consumers() == []


def test_consumers_come_with_their_floors_from_all_pages(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh()
    for number in range(300):
        config = {
            "name": f"c{number:03}",
            "durable_name": f"c{number:03}",
            "ack_policy": "explicit",
        }
        broker.api(f"CONSUMER.CREATE.{name}.c{number:03}", {"stream_name": name, "config": config})
    consumers = RemoteStream(connection, name).consumers()
    assert sorted(one.name for one in consumers) == [f"c{number:03}" for number in range(300)]
    assert {one.ack_floor for one in consumers} == {0}


def test_a_work_queue_with_a_consumer_refuses_another_and_the_code_is_told(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    name = fresh(retention="workqueue")
    config = {"durable_name": "worker", "ack_policy": "explicit"}
    broker.api(f"CONSUMER.CREATE.{name}.worker", {"stream_name": name, "config": config})
    broker.publish(f"{name}.a", [b"x"])
    with pytest.raises(Exception, match="server error 10084"):
        read(RemoteStream(connection, name))


def test_a_missing_stream_is_named(connection: Connection) -> None:
    with pytest.raises(UsageError, match=r"has no stream NOWHERE \(server error 10059\)"):
        RemoteStream(connection, "NOWHERE").info()


def test_a_mirror_names_its_origin(
    broker: Admin, connection: Connection, fresh: Callable[..., str]
) -> None:
    origin = fresh()
    broker.api("STREAM.CREATE.COPY", {"name": "COPY", "mirror": {"name": origin}})
    info = RemoteStream(connection, "COPY").info()
    broker.api("STREAM.DELETE.COPY")
    assert info.mirror is not None
    assert info.mirror.origin == origin


def test_silence_is_taken_as_a_loss(
    broker: Admin,
    connection: Connection,
    fresh: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = fresh()
    broker.publish(f"{name}.a", [b"x"] * 20)
    asked = pulls.Pull._send
    lost = [True]

    async def losing(pull: pulls.Pull, messages: int, max_bytes: int | None) -> None:
        if lost:
            lost.clear()
            pull._name = "another"
        await asked(pull, messages, max_bytes)

    monkeypatch.setattr(pulls, "SILENT_S", 0.3)
    monkeypatch.setattr(pulls.Pull, "_send", losing)
    assert sequences(read(RemoteStream(connection, name))) == list(range(1, 21))
