"""Exports restored by a real server: equal figures, messages, headers, times and consumers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.api.warehouse import open_warehouse
from retention.core import headers
from retention.formats.nats.backup import read_backup
from tests.support import nats_oracle
from tests.support.nats_oracle import Message, Nats
from tests.support.sandboxes import configured

pytestmark = pytest.mark.live

Json = dict[str, Any]

NUMBERS = itertools.count(1)
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
NOW = START + 1_000 * SECOND
SHOWN = ("config", "delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")
"""The fields compared between equal consumers."""
ACKED = {
    "config": {"durable_name": "acked", "name": "acked", "ack_policy": "explicit"},
    "state": {
        "delivered": {"consumer_seq": 6, "stream_seq": 9},
        "ack_floor": {"consumer_seq": 2, "stream_seq": 4},
        "pending": {
            "6": {"Sequence": 4, "Timestamp": START},
            "9": {"Sequence": 6, "Timestamp": START},
        },
        "redelivered": {"9": 3},
    },
}
FRESH = {
    "config": {"durable_name": "fresh", "name": "fresh", "filter_subject": "S.b"},
    "state": {
        "delivered": {"consumer_seq": 0, "stream_seq": 0},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
    },
}


@pytest.fixture(scope="module")
def running() -> Iterator[Nats]:
    with nats_oracle.server() as one:
        yield one


@pytest.fixture
def nats(running: Nats) -> Iterator[Nats]:
    yield running
    for name in running.request("STREAM.NAMES", {})["streams"] or []:
        running.delete(name)


def made(nats: Nats, config: Json, messages: list[Message], **more: Any) -> Json:
    """The info of a new stream of `S.>` with a unique name, because a reused name may get its old state."""
    name = f"S{next(NUMBERS)}"
    return nats.restore(name, {"subjects": ["S.>"], **config}, messages, **more)


def made_of(nats: Nats, config: Json, state: Json, archive: Path) -> Json:
    """The info of the server's stream from an archive, under a new name."""
    return nats.restore_archive({**config, "name": f"S{next(NUMBERS)}"}, state, archive)


def stored(*seqs: int) -> list[Message]:
    blocks = [b"", headers.build([("A", "b"), ("Nats-TTL", "never"), ("Nats-Msg-Id", "é")])]
    return [
        Message(seq, f"S.{'ab'[seq % 2]}", START - seq, blocks[seq % 3 == 0], bytes([seq]) * seq)
        for seq in seqs
    ]


def imported(nats: Nats, folder: Path, table_format: str, config: Json) -> Stream:
    """A server's stream, backed up, imported, and deleted on the server."""
    name = config["name"]
    nats.snapshot(name, folder / "S.arc")
    own = {key: value for key, value in config.items() if key != "metadata"}
    path = configured(folder, own, format=table_format, segment_size=2_000)
    stream = open_warehouse(path, clock=lambda: NOW).new_stream(name)
    stream.import_nats_backup(folder / "S.arc")
    nats.delete(name)
    return stream


def restored(nats: Nats, stream: Stream, folder: Path) -> Json:
    """The info of the server's stream from an export."""
    done = stream.export_nats_backup(folder / "out.arc")
    request = json.loads(Path(done.request).read_text())
    return made_of(nats, request["config"], request["state"], Path(done.file))


def consumers(nats: Nats, info: Json) -> Json:
    stream = info["config"]["name"]
    names = nats.request(f"CONSUMER.NAMES.{stream}", {})["consumers"] or []
    infos = {name: nats.request(f"CONSUMER.INFO.{stream}.{name}", {}) for name in names}
    return {name: {key: info[key] for key in SHOWN} for name, info in infos.items()}


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_stream_comes_back_as_it_was(
    nats: Nats, tmp_path: Path, storage: str, table_format: str
) -> None:
    given = stored(3, 4, 6, 9, 10, 200)
    kept = {"acked": ACKED, "fresh": FRESH}
    config = {"storage": storage, "max_msgs": 500}
    before = made(nats, config, given, last_seq=220, consumers=kept)
    consumed, messages = consumers(nats, before), survivors(nats, before)
    stream = imported(nats, tmp_path, table_format, before["config"])
    after = restored(nats, stream, tmp_path)
    assert survivors(nats, after) == messages == given
    assert after["state"] == before["state"]
    assert nameless(after["config"]) == nameless(before["config"])
    assert consumers(nats, after) == consumed
    assert consumed["acked"]["num_ack_pending"] == 2
    assert consumed["fresh"]["num_pending"] == 2
    nats.snapshot(after["config"]["name"], tmp_path / "again.arc")
    assert rows(tmp_path / "again.arc").equals(rows(tmp_path / "S.arc"))


def test_after_a_pass_it_is_the_servers_own_backup_under_the_same_limits(
    nats: Nats, tmp_path: Path
) -> None:
    limits = {"max_msgs_per_subject": 3, "max_msgs": 5}
    config = made(nats, {}, stored(*range(3, 30)), consumers={"acked": ACKED})["config"]
    nats.snapshot(config["name"], tmp_path / "S.arc")
    nats.update(config | limits)
    answer = nats.snapshot(config["name"], tmp_path / "theirs.arc")
    nats.delete(config["name"])
    wanted = made_of(nats, answer["config"], answer["state"], tmp_path / "theirs.arc")
    messages, consumed = survivors(nats, wanted), consumers(nats, wanted)
    nats.delete(wanted["config"]["name"])
    own = {"name": "S", "subjects": ["S.>"], **limits}
    path = configured(tmp_path, own, format="delta", segment_size=300)
    stream = open_warehouse(path, clock=lambda: NOW).new_stream("S")
    stream.import_nats_backup(tmp_path / "S.arc")
    stream.plan().apply()
    after = restored(nats, stream, tmp_path)
    assert survivors(nats, after) == messages
    assert after["state"] == wanted["state"]
    assert nameless(after["config"]) == nameless(wanted["config"])
    assert consumers(nats, after) == consumed


def test_what_is_published_here_is_served_there(nats: Nats, tmp_path: Path) -> None:
    path = configured(tmp_path, {"name": "S", "subjects": ["S.>"], "allow_msg_ttl": True})
    stream = open_warehouse(path, clock=lambda: NOW).new_stream("S")
    lines = [
        {"subject": "S.a", "data": "x", "ts_ns": START, "headers": {"A": "b"}},
        {"subject": "S.é", "data_b64": "/w==", "ts_ns": START + 1},
        {"subject": "S.a", "headers": {"Nats-TTL": "never"}, "ts_ns": START + 2},
    ]
    stream.publish([json.dumps(line) for line in lines])
    state, info = stream.state(), restored(nats, stream, tmp_path)
    for name in ("messages", "bytes", "first_seq", "last_seq", "num_subjects"):
        assert info["state"][name] == getattr(state, name)
    assert survivors(nats, info) == [
        Message(1, "S.a", START, headers.build([("A", "b")]), b"x"),
        Message(2, "S.é", START + 1, b"", b"\xff"),
        Message(3, "S.a", START + 2, headers.build([("Nats-TTL", "never")]), b""),
    ]
    ack = nats.publish_one("S.b", b"next")
    assert ack["seq"] == 4


@pytest.mark.parametrize("last_seq", [0, 41])
def test_an_empty_stream_goes_on_where_it_was(nats: Nats, tmp_path: Path, last_seq: int) -> None:
    before = made(nats, {}, [], last_seq=last_seq)
    stream = imported(nats, tmp_path, "delta", before["config"])
    after = restored(nats, stream, tmp_path)
    assert after["state"]["last_seq"] == before["state"]["last_seq"] == last_seq
    assert nats.publish_one("S.b", b"next")["seq"] == last_seq + 1


def rows(path: Path) -> pa.Table:
    return pa.concat_tables(read_backup(path).batches())


def survivors(nats: Nats, info: Json) -> list[Message]:
    return nats.survivors(info["config"]["name"])


def nameless(config: Json) -> Json:
    """A configuration without server metadata, and without fields unique to a stream."""
    return {key: value for key, value in config.items() if key not in ("metadata", "name")}
