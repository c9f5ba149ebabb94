"""One process that follows several streams of a live server: one fails, one is sealed, a signal ends the others."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.stores.lease import lease
from tests.support.followers import Follower, followers, wait_until
from tests.support.nats_process import Admin, NatsProcess, admin, nats_process
from tests.support.sandboxes import NOW, configured

pytestmark = pytest.mark.live

NAMES = ("FIRST", "SECOND", "THIRD")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsProcess]:
    (tmp_path / "server").mkdir()
    with nats_process(tmp_path / "server") as started:
        yield started


@pytest.fixture
def user(server: NatsProcess) -> Iterator[Admin]:
    with admin(server.url) as one:
        for name in NAMES:
            one.create(name)
            one.publish(f"{name}.a", [b"before"] * 3)
        yield one


@pytest.fixture
def warehouse(server: NatsProcess, tmp_path: Path) -> Warehouse:
    configured(tmp_path, *({"name": name, "sync": {"server": server.url}} for name in NAMES))
    return open_warehouse(tmp_path / "retention.yaml")


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., Follower]]:
    with followers(tmp_path, "nats") as start:
        yield start


def held(warehouse: Warehouse, name: str) -> int:
    """The last sequence that was copied."""
    store = warehouse.stream(name).opened.store
    return store.snapshot().counters.next_seq.get(0, 1) - 1 if store.exists() else 0


def test_a_failed_stream_is_told_at_once_and_stops_no_other(
    user: Admin, warehouse: Warehouse, follow: Callable[..., Follower]
) -> None:
    follower = follow()
    wait_until(lambda: all(held(warehouse, name) == 3 for name in NAMES), follower)
    user.api("STREAM.DELETE.FIRST")
    wait_until(lambda: "FIRST: failed" in follower.said, follower)
    wait_until(lambda: "has no stream FIRST" in follower.said, follower)
    config = user.api("STREAM.INFO.SECOND")["config"]
    user.api("STREAM.UPDATE.SECOND", config | {"sealed": True})
    wait_until(lambda: "SECOND: synced, copied 3 messages" in follower.said, follower)
    user.publish("THIRD.a", [b"after"] * 5)
    wait_until(lambda: held(warehouse, "THIRD") == 8, follower)
    assert follower.end() == 5
    second, third = follower.printed.splitlines()
    assert (
        second
        == "SECOND: copied 3 messages in 1 commit, up to sequence 3 of SECOND; the server's stream is sealed"
    )
    assert third.startswith("THIRD: copied 8 messages in ")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_streams_in_good_order(
    user: Admin,
    warehouse: Warehouse,
    follow: Callable[..., Follower],
    how: signal.Signals,
) -> None:
    follower = follow("--format", "json")
    for at in range(20):
        for name in NAMES:
            user.publish(f"{name}.a", [b"live" * at] * 10)
        if at == 10:
            wait_until(lambda: all(held(warehouse, name) > 3 for name in NAMES), follower)
    assert follower.end(how) == 0, follower.said
    entries = json.loads(follower.printed)["streams"]
    assert [entry["stream"] for entry in entries] == list(NAMES)
    for entry in entries:
        assert entry["position"] == held(warehouse, entry["stream"])
        assert user.api(f"CONSUMER.NAMES.{entry['stream']}")["total"] == 0
    done = warehouse.sync()
    assert [each.value.position for each in done if each.value] == [203] * 3
    for name in NAMES:
        tables = list(warehouse.stream(name).messages())
        assert [seq for table in tables for seq in table["seq"].to_pylist()] == [*range(1, 204)]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_only_stream_leaves_only_its_outcome_on_standard_error(
    user: Admin, warehouse: Warehouse, follow: Callable[..., Follower], how: signal.Signals
) -> None:
    follower = follow("FIRST")
    wait_until(lambda: held(warehouse, "FIRST") == 3, follower)
    time.sleep(0.3)
    assert follower.end(how) == 0
    [line] = follower.said.splitlines()
    assert line.startswith("FIRST: synced, copied 3 messages")
    assert user.api("CONSUMER.NAMES.FIRST")["total"] == 0


def test_a_stream_with_a_backlog_holds_up_no_other(
    user: Admin, warehouse: Warehouse, follow: Callable[..., Follower]
) -> None:
    for _ in range(30):
        user.publish("FIRST.a", [b"x" * 1_000] * 5_000)
    follower = follow()
    wait_until(lambda: held(warehouse, "THIRD") == 3, follower)
    assert held(warehouse, "FIRST") < 150_003
    wait_until(lambda: held(warehouse, "FIRST") == 150_003, follower)
    assert follower.end() == 0


def test_a_server_that_is_away_does_not_keep_a_signal_waiting(
    user: Admin, server: NatsProcess, warehouse: Warehouse, follow: Callable[..., Follower]
) -> None:
    follower = follow()
    wait_until(lambda: all(held(warehouse, name) == 3 for name in NAMES), follower)
    server.stop(signal.SIGKILL)
    time.sleep(1)
    assert follower.end() == 0, follower.said
    server.start()


def test_a_stream_that_another_process_follows_is_busy_and_the_others_are_followed(
    user: Admin, warehouse: Warehouse, follow: Callable[..., Follower], tmp_path: Path
) -> None:
    with lease(str(tmp_path / "streams" / "FIRST"), "sync", lambda: NOW):
        follower = follow()
        wait_until(lambda: "FIRST: failed" in follower.said, follower)
        wait_until(lambda: held(warehouse, "THIRD") == 3, follower)
        assert follower.end() == 75
