"""Record the answers of a real Iggy server for the tests: `IGGY_SERVER=… python -m scripts.record_iggy`."""

from __future__ import annotations

import base64
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from apache_iggy import HeaderKey, HeaderValue, SendMessage

from retention.iggy import wire
from retention.stores.offset_table import ReaderKind
from tests.support.iggy_server import STREAM, IggyServer
from tests.support.recorded_topic import FIXTURE, TOPIC, key_of

_EVERYTHING = 1_000_000
_PARTITIONS = 4
_CUTS = ((0, 1), (1, 1), (1, 3), (2, 100), (5, 1), (7, 2), (1_000, 5))
"""Offsets and counts of polls of partition 0, with which the cutting of batches is compared."""
_READERS: tuple[tuple[ReaderKind, str | int], ...] = (
    ("consumer", "worker"),
    ("consumer", 7),
    ("group", 0),
)
_KIB = 1_024


def main() -> None:
    """Start a server, do to a topic what users do, and write its answers after each stage."""
    with tempfile.TemporaryDirectory() as directory:
        server = IggyServer(Path(directory))
        server.start()
        try:
            stages = _stages(server)
            version = server.call(lambda client: client.get_stats()).iggy_server_version
        finally:
            server.stop()
    document = {"server": version, "stages": stages}
    FIXTURE.parent.mkdir(exist_ok=True)
    FIXTURE.write_bytes(gzip.compress(json.dumps(document, sort_keys=True).encode(), mtime=0))
    print(f"{FIXTURE}: Iggy server {version}, {len(stages)} stages")


def _stages(server: IggyServer) -> dict[str, Any]:
    server.create_stream()
    return _growing(server) | _changing(server)


def _growing(server: IggyServer) -> dict[str, Any]:
    stages = {}
    server.create_topic(TOPIC, 2, segment_size=_KIB * _KIB, message_expiry=3_600_000_000)
    stages["empty"] = _recorded(server)
    server.send(TOPIC, 0, _odd(), [SendMessage(f"{n}") for n in range(4)], [SendMessage("last")])
    server.send(TOPIC, 1, [SendMessage(b"\0")])
    stages["first"] = _recorded(server)
    server.send(TOPIC, 0, [SendMessage("more", id=2**128 - 1)])
    server.send(TOPIC, 1, *([SendMessage(bytes([n]) * 100 * _KIB)] for n in range(35)))
    server.call(lambda client: client.create_consumer_group(STREAM, TOPIC, "billing"))
    server.store_offset(TOPIC, 0, 1, "worker", 3)
    server.store_offset(TOPIC, 0, 1, 7, 2)
    stages["more"] = _recorded(server)
    server.delete_segments(TOPIC, 1, 2)
    stages["deleted"] = _recorded(server)
    return stages


def _changing(server: IggyServer) -> dict[str, Any]:
    stages = {}
    server.call(lambda client: client.create_partitions(STREAM, TOPIC, 1))
    server.send(TOPIC, 2, [SendMessage("of the third")])
    stages["grown"] = _recorded(server)
    server.call(lambda client: client.delete_partitions(STREAM, TOPIC, 1))
    stages["shrunk"] = _recorded(server)
    server.call(lambda client: client.create_partitions(STREAM, TOPIC, 1))
    server.send(TOPIC, 2, [SendMessage("another"), SendMessage("one")])
    stages["grown again"] = _recorded(server)
    server.call(lambda client: client.purge_topic(STREAM, TOPIC))
    stages["purged"] = _recorded(server)
    for partition in (0, 1, 2):
        server.send(TOPIC, partition, [SendMessage(f"new {n}") for n in range(60)])
    stages["refilled"] = _recorded(server)
    server.call(lambda client: client.delete_topic(STREAM, TOPIC))
    server.create_topic(TOPIC, 2, segment_size=_KIB * _KIB)
    server.send(TOPIC, 0, [SendMessage(f"anew {n}") for n in range(60)])
    stages["made anew"] = _recorded(server)
    return stages


def _odd() -> list[SendMessage]:
    typed = {
        HeaderKey.Raw(b"\xff\0"): HeaderValue.Raw(b"\0"),
        HeaderKey.String("ü"): HeaderValue.String("x" * 255),
        HeaderKey.Int8(-1): HeaderValue.Bool(value=True),
        HeaderKey.UnsignedInt128(2**128 - 1): HeaderValue.Int128(-(2**127)),
        HeaderKey.Float32(1.5): HeaderValue.Float64(-0.0),
    }
    return [
        SendMessage(b"\0\r\n\xff", typed),
        SendMessage("plain"),
        SendMessage("ü", {"a": "b", "n": 5}, 1),
    ]


def _recorded(server: IggyServer) -> dict[str, Any]:
    topic = wire.topic_request(STREAM, TOPIC)
    offsets = [
        (wire.GET_CONSUMER_OFFSET, wire.offset_request(STREAM, TOPIC, partition, kind, reader))
        for partition in range(_PARTITIONS)
        for kind, reader in _READERS
    ]
    requests = [(wire.GET_TOPIC, topic), (wire.GET_CONSUMER_GROUPS, topic)]
    answers = {key_of(*each): _encoded(server.request(*each)) for each in requests}
    info = wire.topic_answer(base64.b64decode(answers[key_of(wire.GET_TOPIC, topic)]), "recording")
    numbers = [partition.number for partition in info.partitions]
    answers |= {
        key_of(*each): _encoded(server.request(*each)) for each in offsets[: 3 * len(numbers)]
    }
    cuts = {f"{first} {count}": _polled(server, 0, first, count) for first, count in _CUTS}
    logs = {str(number): _polled(server, number, 0, _EVERYTHING) for number in numbers}
    return {"answers": answers, "logs": logs, "cuts": cuts}


def _polled(server: IggyServer, partition: int, first: int, count: int) -> str:
    body = wire.poll_request(STREAM, TOPIC, partition, first, count)
    return _encoded(server.request(wire.POLL_MESSAGES, body))


def _encoded(answer: bytes) -> str:
    return base64.b64encode(answer).decode()


if __name__ == "__main__":
    main()
