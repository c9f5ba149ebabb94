"""Clocks that jump: a lease of an object store from the future, and a machine whose clock was set back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retention.apply.guards import Guards
from retention.core.units import DAY
from retention.errors import BusyError, UsageError
from retention.history.runs import history_of
from retention.storage import files
from retention.stores import lease as leases
from tests.support.sandboxes import NOW, ORDERS, commands, lines, opened

FUTURE_MS = 4_000_000_000_000
ROOT = "s3://lake/streams/ORDERS"


class Objects:
    """An object store with a clock that was set back: existing objects were written in the future."""

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
    monkeypatch.setattr(leases, "refuse_without_exclusion", lambda _: None)
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
    # Operations without an instant continue, and an allowed run gets a later name.
    back.stream("ORDERS").publish(lines(1))
    (again,) = back.apply(as_of=NOW, guards=Guards(allow_future=True))
    assert first.value is not None
    assert again.value is not None, again.sentence
    assert again.value.run > first.value.run
    names = [record.run for record in history_of(str(tmp_path), "ORDERS").outcomes()]
    assert names == sorted(names, reverse=True)


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_a_pass_with_a_wrong_clock_is_settled_for_good(tmp_path: Path, format_: str) -> None:
    shop = commands(tmp_path, ORDERS, format=format_)
    shop.json(
        "publish", "ORDERS", stdin="\n".join(json.dumps({"subject": "orders.a"}) for _ in "abc")
    )
    shop.run("apply", "--yes", "--as-of", "2099-01-01T00:00:00Z", "--allow-future")
    for _ in range(2):
        refused = shop.run("apply", "--yes")
        assert refused.exit_code == 4
        assert "`retention repair clock ORDERS --yes`" in refused.stderr
    dry = shop.run("repair", "clock", "ORDERS")
    assert "removed 3 messages" in dry.stdout
    assert shop.run("apply", "--yes").exit_code == 4
    repaired = shop.json("repair", "clock", "ORDERS", "--yes")
    (wrong,) = repaired["wrong"]
    assert f"`retention undo {wrong['run']}` restores them" in dry.stdout
    for _ in range(2):
        assert shop.run("apply", "--yes").exit_code == 0
    assert "nothing to repair" in shop.run("repair", "clock", "ORDERS", "--yes").stdout
    assert shop.run("undo", wrong["run"]).exit_code == 0
    assert shop.run("apply", "--yes").exit_code == 0
    (state,) = shop.json("state", "ORDERS")
    assert state["messages"] == 3
    recorded = [one for one in shop.json("history", "ORDERS") if one["kind"] == "repair"]
    assert [one["wrong_runs"] for one in recorded] == [[wrong["run"]]]
    assert "repair clock" in shop.run("history").stdout


def test_runs_are_named_by_the_real_time_again_once_a_clock_is_repaired(tmp_path: Path) -> None:
    ahead = opened(tmp_path, ORDERS, now_ns=NOW + 30_000 * DAY)
    ahead.new_stream("ORDERS").publish(lines(3))
    (wrong,) = ahead.apply()
    assert wrong.value is not None
    orders = opened(tmp_path, ORDERS).stream("ORDERS")
    repaired = orders.repair_wrong_clock().apply()
    assert [one.run for one in repaired.wrong] == [wrong.value.run]
    later = opened(tmp_path, ORDERS, now_ns=NOW + DAY)
    (outcome,) = later.apply()
    assert outcome.value is not None, outcome.sentence
    names = [record["run"] for record in orders.history()]
    assert names == sorted(names, reverse=True)
    assert names == [outcome.value.run, repaired.run, wrong.value.run]
    assert [record["run"] for record in later.history()] == names
    assert outcome.value.run.startswith("c0001-20270116T080000.")
    assert later.undo(wrong.value.run)["restored_messages"] == 3
    # Again: another wrong clock, another repair.
    (again,) = opened(tmp_path, ORDERS, now_ns=NOW + 40_000 * DAY).apply()
    assert again.value is not None
    second = later.stream("ORDERS").repair_wrong_clock().apply()
    assert [one.run for one in second.wrong] == [again.value.run]
    assert (second.run or "").startswith("c0002-")


def test_an_instant_that_is_to_count_is_not_later_than_the_clock(tmp_path: Path) -> None:
    orders = opened(tmp_path, ORDERS).new_stream("ORDERS")
    with pytest.raises(UsageError, match="is later than the clock"):
        orders.repair_wrong_clock(NOW + 1).apply()


def test_messages_that_a_wrong_clock_stamped_are_named(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    warehouse.new_stream("ORDERS").publish(lines(2))
    warehouse.new_stream("ORDERS").publish(lines(2, first_ns=NOW + DAY))
    later = warehouse.stream("ORDERS").repair_wrong_clock().plan.later
    assert later is not None
    assert (later.first_seq, later.last_seq) == (3, 4)
