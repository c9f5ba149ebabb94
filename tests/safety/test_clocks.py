"""Clocks that jump: a lease of an object store from the future, and a machine whose clock was set back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retention import files
from retention.errors import BusyError
from retention.passes.guards import Guards
from retention.passes.history import history_of
from retention.stores import lease as leases
from retention.units import DAY
from tests.support.sandboxes import NOW, ORDERS, lines, opened

FUTURE_MS = 4_000_000_000_000
ROOT = "s3://lake/streams/ORDERS"


class Objects:
    """An object store of one bucket whose clock was set back: what is there was written in the future."""

    def __init__(self) -> None:
        self.content: dict[str, tuple[bytes, int]] = {}
        self.now_ms = 1_800_000_000_000

    def put(self, place: str, content: bytes) -> None:
        self.now_ms += 1
        self.content[place] = (content, self.now_ms)

    def get(self, place: str) -> bytes | None:
        return self.content.get(place, (None, 0))[0]

    def stat(self, place: str) -> tuple[int, int]:
        if place not in self.content:
            raise FileNotFoundError(place)
        content, written_ms = self.content[place]
        return len(content), written_ms

    def delete(self, places: list[str]) -> None:
        for place in places:
            self.content.pop(place, None)


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Objects:
    store = Objects()
    monkeypatch.setattr(files, "replace", store.put)
    monkeypatch.setattr(files, "read_bytes", store.get)
    monkeypatch.setattr(files, "stat", store.stat)
    monkeypatch.setattr(files, "delete", store.delete)
    monkeypatch.setattr(leases, "_SETTLE_S", 0.0)
    return store


def place_of(kind: str) -> str:
    return f"{ROOT}/_retention/{kind}.lease"


def test_a_lease_from_the_future_is_waited_out_and_no_longer(objects: Objects) -> None:
    objects.content[place_of("append")] = (b'{"since_ns": 4000000000000000000}', FUTURE_MS)
    with leases.lease(ROOT, "append", lambda: NOW, expiry_s=0.3):
        assert json.loads(objects.get(place_of("append")) or b"")["since_ns"] == NOW
    assert objects.content == {}


def test_a_lease_from_the_future_that_is_still_written_is_held(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renewed(place: str) -> tuple[int, int]:
        found = Objects.stat(objects, place)
        if place.endswith(".lease"):
            objects.content[place] = (objects.content[place][0], found[1] + 1)
        return found

    monkeypatch.setattr(files, "stat", renewed)
    owner = json.dumps({"pid": 1, "host": "h", "since_ns": 10**40}).encode()
    objects.content[place_of("append")] = (owner, FUTURE_MS)
    with (
        pytest.raises(BusyError, match="held by another process"),
        leases.lease(ROOT, "append", lambda: NOW, expiry_s=0.3),
    ):
        pass


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_a_clock_that_jumps_back_keeps_runs_in_order_and_stops_rewinds(
    tmp_path: Path, format_: str
) -> None:
    before = opened(tmp_path, ORDERS, now_ns=NOW, format=format_)
    before.stream("ORDERS").publish(lines(72))
    (first,) = before.apply()
    back = opened(tmp_path, ORDERS, now_ns=NOW - 30 * DAY, format=format_)
    (refused,) = back.apply()
    assert refused.exit_code == 4
    assert "--allow-rewind" in refused.sentence
    # What needs no instant goes on, and a run that is allowed gets a later name.
    back.stream("ORDERS").publish(lines(1))
    (again,) = back.apply(as_of=NOW, guards=Guards(allow_future=True))
    assert first.value is not None
    assert again.value is not None, again.sentence
    assert again.value.run > first.value.run
    names = [record["run"] for record in history_of(str(tmp_path), "ORDERS").outcomes()]
    assert names == sorted(names, reverse=True)
