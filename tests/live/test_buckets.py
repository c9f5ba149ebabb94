"""A bucket here and on a real server, operation by operation: answers, history and watch events are equal."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.js import api
from nats.js.errors import (
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoKeysError,
)

from retention.api.bucket import Bucket
from retention.api.warehouse import open_warehouse
from retention.config import load_config
from retention.errors import KeyExistsError, MissingKeyError, RevisionError
from tests.support import nats_oracle
from tests.support.nats_oracle import Nats

pytestmark = pytest.mark.live

OPERATIONS = int(os.environ.get("RETENTION_BUCKETS", "60"))
KEYS = ("a", "b", "c.d", "c.e", "f")
SAID = {None: "put", "PUT": "put", "DEL": "delete", "PURGE": "purge"}
SETTINGS = {"history": 3}

Answer = tuple[Any, ...]
Event = tuple[str, int, str, bytes]
Act = tuple[str, str, bytes, int | None]
"""An operation, its key, a value and a revision."""


@dataclass(frozen=True)
class There:
    """A bucket of a real server, through the broker's client."""

    nats: Nats
    kv: Any
    watcher: Any

    @classmethod
    def made(cls, nats: Nats, name: str, **settings: Any) -> There:
        stream = nats._client.jetstream()
        kv = nats._run(stream.create_key_value(api.KeyValueConfig(name, **settings)))
        there = cls(nats, kv, nats._run(kv.watchall()))
        assert there.events() == []
        return there

    def write(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        """Write a message that the client has no method for, such as a purge with a revision."""
        answer = self.nats.publish_one(f"$KV.{self.kv._name}.{key}", value, headers)
        if "error" in answer:
            raise KeyWrongLastSequenceError(description=answer["error"]["description"])
        return int(answer["seq"])

    def act(self, what: str, key: str, value: bytes, revision: int | None) -> Answer:
        expects = {} if revision is None else {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        run, kv = self.nats._run, self.kv
        acts: dict[str, Callable[[], Any]] = {
            "put": lambda: run(kv.put(key, value)),
            "create": lambda: run(kv.create(key, value)),
            "update": lambda: run(kv.update(key, value, revision)),
            "delete": lambda: self.write(key, b"", {"KV-Operation": "DEL", **expects}),
            "purge": lambda: self.write(
                key, b"", {"KV-Operation": "PURGE", "Nats-Rollup": "sub", **expects}
            ),
            "get": lambda: _entry(run(kv.get(key, revision))),
            "history": lambda: [_event(entry) for entry in run(kv.history(key))],
            "keys": lambda: sorted(run(kv.keys())),
            "purge_deletes": lambda: run(kv.purge_deletes(olderthan=0)) and None,
        }
        try:
            return "done", acts[what]()
        except KeyWrongLastSequenceError as error:
            return "conflict", int(re.findall(r"\d+", str(error))[-1])
        except KeyNotFoundError:
            return ("missing",)
        except NoKeysError:
            return ("done", []) if what == "keys" else ("missing",)

    def events(self) -> list[Event]:
        """The watch events since the last call; a trailing message signals their arrival."""
        return self.nats._run(self._events())

    async def _events(self) -> list[Event]:
        found: list[Event] = []
        info = await self.kv._js.stream_info(self.kv._stream)
        while True:
            try:
                entry = await self.watcher.updates(timeout=0.05)
            except nats.errors.TimeoutError:
                consumer = await self.watcher._sub.consumer_info()
                if consumer.delivered.stream_seq >= info.state.last_seq or not info.state.messages:
                    return found
                continue
            if entry is not None:
                found.append(_event(entry))


def _entry(entry: Any) -> tuple[int, bytes]:
    return entry.revision, entry.value or b""


def _event(entry: Any) -> Event:
    return entry.key, entry.revision, SAID[entry.operation], entry.value or b""


@dataclass(frozen=True)
class Here:
    """The same bucket in this engine."""

    kv: Bucket
    watcher: Any

    @classmethod
    def made(cls, folder: Path, name: str, table_format: str, **settings: Any) -> Here:
        kv = open_warehouse(listed(folder, table_format, {"name": name, **settings})).kv(name)
        here = cls(kv, kv.watch())
        assert here.events() == []
        return here

    def act(self, what: str, key: str, value: bytes, revision: int | None) -> Answer:
        kv = self.kv
        acts: dict[str, Callable[[], Any]] = {
            "put": lambda: kv.put(key, value),
            "create": lambda: kv.create(key, value),
            "update": lambda: kv.update(key, value, revision or 0),
            "delete": lambda: kv.delete(key, revision),
            "purge": lambda: kv.purge(key, revision),
            "get": lambda: (kv.get(key, revision).revision, kv.get(key, revision).value),
            "history": lambda: [_own(entry) for entry in kv.history(key)],
            "keys": kv.keys,
            "purge_deletes": lambda: kv.purge_deletes(older_than=0).apply().run and None,
        }
        try:
            return "done", acts[what]()
        except (RevisionError, KeyExistsError) as error:
            return "conflict", error.actual
        except MissingKeyError:
            return ("missing",)

    def events(self) -> list[Event]:
        return [_own(entry) for entry in self.watcher.poll()]


def listed(folder: Path, table_format: str, *buckets: dict[str, Any]) -> Path:
    """A configuration with buckets."""
    content = {"defaults": {"format": table_format}, "buckets": buckets}
    (folder / "retention.yaml").write_text(json.dumps(content))
    return folder


def _own(entry: Any) -> Event:
    return entry.key, entry.revision, entry.operation, entry.value


def random_acts(seed: int) -> Generator[Act, Answer, None]:
    """Operations on five keys; revisions are either current or arbitrary."""
    draw, last = random.Random(seed), dict.fromkeys(KEYS, 0)
    whats = ["put"] * 3 + ["create", "update", "update", "delete", "purge", "get", "get", "history"]
    for number in range(1, OPERATIONS + 1):
        what, key = draw.choice([*whats, "keys"]), draw.choice(KEYS)
        if number % 50 == 0:
            what = "purge_deletes"
        near = draw.choice([last[key], last[key], number // 2, last[key] + 1])
        revision = None if draw.random() < 0.4 else max(near, 1)
        if what == "update":
            revision = near
        answer = yield what, key, b"v%d" % number, revision
        if answer[0] == "done" and isinstance(answer[1], int):
            last[key] = answer[1]


@pytest.fixture(scope="module")
def running() -> Iterator[Nats]:
    with nats_oracle.server() as nats:
        yield nats


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_random_operations_are_answered_alike(
    tmp_path: Path, running: Nats, table_format: str
) -> None:
    name = f"R{table_format}"
    there = There.made(running, name, **SETTINGS)
    here = Here.made(tmp_path, name, table_format, **SETTINGS)
    acts, counts = random_acts(seed=22), dict[str, int]()
    act = next(acts)
    while True:
        theirs, ours = there.act(*act), here.act(*act)
        assert ours == theirs, act
        assert here.events() == there.events(), act
        counts[theirs[0]] = counts.get(theirs[0], 0) + 1
        try:
            act = acts.send(ours)
        except StopIteration:
            break
    assert min(counts.get(kind, 0) for kind in ("done", "conflict", "missing")) > OPERATIONS // 20
    for key in KEYS:
        assert here.act("history", key, b"", None) == there.act("history", key, b"", None)


SAME = (
    *(
        "name",
        "subjects",
        "max_msgs_per_subject",
        "max_age",
        "max_msg_size",
        "max_bytes",
        "max_msgs",
    ),
    *("discard", "allow_rollup_hdrs", "deny_delete", "deny_purge", "allow_direct", "retention"),
    *("duplicate_window", "storage", "num_replicas", "allow_msg_ttl", "subject_delete_marker_ttl"),
)


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ({}, {"allow_msg_ttl": True}),
        ({"history": 10, "ttl": 3600, "max_value_size": 128, "max_bytes": 1024}, None),
        ({"history": 5, "ttl": 5}, {"history": 5, "ttl": "5s", "allow_msg_ttl": True}),
        ({"ttl": 3600}, {"ttl": "1h", "allow_msg_ttl": True}),
        ({"limit_marker_ttl": 60}, {"limit_marker_ttl": "1m"}),
    ],
)
def test_a_bucket_s_stream_is_the_one_that_a_client_makes(
    running: Nats, asked: dict[str, Any], settings: dict[str, Any] | None
) -> None:
    """TestKeyValueCreate, TestKeyValueDuplicatesWindow; this client, unlike others, always allows TTLs of keys."""
    markers = asked.get("limit_marker_ttl")
    given = {name: value for name, value in asked.items() if name != "limit_marker_ttl"}
    stream = running._client.jetstream()
    running._run(stream.create_key_value(api.KeyValueConfig("S", direct=True, **given)))
    config = running.info("KV_S")["config"]
    if markers:
        extra = {"allow_msg_ttl": True, "subject_delete_marker_ttl": markers * 10**9}
        config = running.update(config | extra)["config"]
    running.delete("KV_S")
    ours = settings if settings is not None else asked | {"ttl": "1h", "allow_msg_ttl": True}
    made = load_config("-", json.dumps({"buckets": [{"name": "S", **ours}]}).encode()).stream(
        "KV_S"
    )
    assert made is not None
    values = json.loads(made.model_dump_json())
    absent = {"max_msgs": -1, "max_age": 0, "deny_purge": False, "allow_msg_ttl": False}
    for key in SAME:
        assert values[key] == config.get(key, absent.get(key, 0)), key


def both(running: Nats, folder: Path, name: str, **settings: Any) -> tuple[There, Here]:
    ttl = {"ttl": f"{settings['ttl']}s"} if "ttl" in settings else {}
    return There.made(running, name, **settings), Here.made(
        folder, name, "parquet", **settings | ttl
    )


def test_a_history_of_ten(tmp_path: Path, running: Nats) -> None:
    """TestKeyValueHistory."""
    sides = both(running, tmp_path, "LIST", history=10)
    for side in sides:
        for number in range(15):
            side.act("put", "age", b"%d" % (number + 22), None)
    there, here = (side.act("history", "age", b"", None) for side in sides)
    assert there == here
    assert [revision for _, revision, _, _ in here[1]] == list(range(6, 16))


def test_delete_keeps_what_purge_takes(tmp_path: Path, running: Nats) -> None:
    """TestKeyValueDeleteVsPurge, TestKeyValueDeleteRevisionMismatch, TestKeyValueUpdateRevisionMismatch."""
    told = []
    for side in both(running, tmp_path, "KVS", history=10):
        for key, value in (("name", b"derek"), ("age", b"22"), ("name", b"ivan"), ("age", b"33")):
            side.act("put", key, value, None)
        told.append(
            [
                side.act("delete", "age", b"", None),
                side.act("history", "age", b"", None),
                side.act("purge", "name", b"", 2),
                side.act("delete", "name", b"", 4),
                side.act("update", "name", b"x", 4),
                side.act("purge", "name", b"", 3),
                side.act("get", "name", b"", None),
                side.act("history", "name", b"", None),
                side.act("create", "name", b"again", None),
                side.act("create", "name", b"again", None),
            ]
        )
    assert told[0] == told[1]
    assert told[1][2] == ("conflict", 3)


def test_deletions_are_purged_by_age(tmp_path: Path, running: Nats) -> None:
    """TestKeyValuePurgeDeletesMarkerThreshold, TestKeyValueDeleteTombstones."""
    there, here = both(running, tmp_path, "MARKS", history=10)
    for side in (there, here):
        for key in ("foo", "bar", "foo"):
            side.act("put", key, b"1", None)
        side.act("delete", "foo", b"", None)
    time.sleep(1.2)
    for side in (there, here):
        side.act("delete", "bar", b"", None)
    running._run(there.kv.purge_deletes(olderthan=1))
    here.kv.purge_deletes(older_than="1s").apply()
    for key in ("foo", "bar"):
        assert here.act("history", key, b"", None) == there.act("history", key, b"", None)
    assert here.act("history", "bar", b"", None)[1][0][2] == "delete"
    for side in (there, here):
        side.act("purge_deletes", "", b"", None)
    assert running.info("KV_MARKS")["state"]["messages"] == here.kv.status().values == 0


def test_values_expire_alike(tmp_path: Path, running: Nats) -> None:
    """TestKeyValueTTL, TestKeyValueLimitMarkerTTL: after the TTL a value is absent, and can be created again."""
    there, here = both(running, tmp_path, "SHORT", history=3, ttl=1)
    told = []
    for side in (there, here):
        side.act("put", "a", b"1", None)
    time.sleep(1.5)
    for side in (there, here):
        told.append(
            [
                side.act("get", "a", b"", None),
                side.act("update", "a", b"x", 1),
                side.act("delete", "a", b"", 1),
                side.act("create", "a", b"2", None),
                side.act("history", "a", b"", None),
            ]
        )
    assert told[0] == told[1]
    assert told[1][1] == ("conflict", 0)


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_client_goes_on_with_a_bucket_that_was_worked_on_here(
    tmp_path: Path, running: Nats, table_format: str
) -> None:
    name = f"T{table_format}"
    there = There.made(running, name, history=3)
    for number in range(4):
        there.act("put", "a", b"%d" % number, None)
    there.act("delete", "b", b"", None)
    running.snapshot(f"KV_{name}", tmp_path / f"KV_{name}")
    warehouse = open_warehouse(listed(tmp_path, table_format, {"name": name, "history": 3}))
    stream = warehouse.new_stream(f"KV_{name}")
    stream.import_nats_backup(tmp_path / f"KV_{name}")
    here = Here(warehouse.kv(name), None)
    assert here.act("history", "a", b"", None) == there.act("history", "a", b"", None)
    assert here.act("update", "a", b"here", 4) == ("done", 6)
    assert here.act("create", "b", b"again", None) == ("done", 7)
    assert here.act("purge", "a", b"", 6) == ("done", 8)
    warehouse.apply([f"KV_{name}"])
    exported = stream.export_nats_backup(tmp_path / "back.arc")
    request = json.loads(Path(exported.request).read_text())
    running.delete(f"KV_{name}")
    running.restore_archive(request["config"], request["state"], Path(exported.file))
    client = running._client.jetstream()
    kv = running._run(client.key_value(name))
    back = There(running, kv, None)
    for key in ("a", "b"):
        assert back.act("history", key, b"", None) == here.act("history", key, b"", None)
    assert back.act("update", "b", b"there", 7) == ("done", 9)
    assert back.act("create", "a", b"anew", None) == ("done", 10)
