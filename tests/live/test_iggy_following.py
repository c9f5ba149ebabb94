"""One process that follows several topics of a real Iggy server (`IGGY_SERVER`): failures, a signal, a restart."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retention.api.warehouse import Warehouse, open_warehouse

pytest.importorskip("apache_iggy")
from apache_iggy import SendMessage

from tests.support.followers import Follower, followers, wait_until
from tests.support.iggy_server import PASSWORD, PROGRAM, STREAM, USER, IggyServer

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not PROGRAM, reason="IGGY_SERVER names no program of a server"),
]

TOPICS = ("first", "second", "third")
PARTITIONS = 3
EACH = 4
WHOLE = PARTITIONS * EACH


@pytest.fixture
def server(tmp_path: Path) -> Iterator[IggyServer]:
    running = IggyServer(tmp_path / "server")
    running.start()
    running.create_stream()
    for topic in TOPICS:
        running.create_topic(topic, PARTITIONS)
    yield running
    running.stop(signal.SIGKILL)


@pytest.fixture
def warehouse(tmp_path: Path, server: IggyServer, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setenv("IGGY_USERNAME", USER)
    monkeypatch.setenv("IGGY_PASSWORD", PASSWORD)
    entry = f'stream: {STREAM}, partitions: {PARTITIONS}, sync: {{server: "{server.address}"}}'
    lines = [f"  - {{name: {topic}, {entry}}}\n" for topic in TOPICS]
    (tmp_path / "retention.yaml").write_text("topics:\n" + "".join(lines), encoding="utf-8")
    return open_warehouse(tmp_path / "retention.yaml", engine="local")


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., Follower]]:
    with followers(tmp_path, "iggy") as start:
        yield start


def fill(server: IggyServer, *topics: str) -> None:
    """Send a few messages to each partition."""
    for topic in topics:
        for partition in range(PARTITIONS):
            server.send(topic, partition, [SendMessage(f"{topic} {n}") for n in range(EACH)])


def held(warehouse: Warehouse, topic: str) -> list[tuple[int, int]]:
    """Partition and offset of each message that was copied."""
    copy = warehouse.topic(topic)
    if not copy.opened.store.exists():
        return []
    tables = [table.select(["partition", "seq"]).to_pylist() for table in copy.messages()]
    return sorted((row["partition"], row["seq"]) for table in tables for row in table)


def each_once(times: int) -> list[tuple[int, int]]:
    """Partition and offset of what `fill` has sent so often."""
    return [(partition, seq) for partition in range(PARTITIONS) for seq in range(times * EACH)]


def test_topics_that_are_purged_or_deleted_are_told_and_stop_no_other(
    server: IggyServer, warehouse: Warehouse, follow: Callable[..., Follower]
) -> None:
    fill(server, *TOPICS)
    follower = follow("third", *TOPICS, "third")
    wait_until(lambda: all(held(warehouse, topic) == each_once(1) for topic in TOPICS), follower)
    server.purge_topic("first")
    wait_until(lambda: "first: failed" in follower.said, follower)
    wait_until(lambda: "first: partition 0 of topic first" in follower.said, follower)
    server.delete_topic("second")
    wait_until(
        lambda: "topic second of stream shop: there is no such topic" in follower.said, follower
    )
    fill(server, "third")
    wait_until(lambda: held(warehouse, "third") == each_once(2), follower)
    assert follower.end() == 5
    assert follower.printed.startswith(f"third: copied {2 * WHOLE} messages in ")
    assert PASSWORD not in follower.printed + follower.said
    for topic in ("first", "second"):
        assert held(warehouse, topic) == each_once(1)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_topics_go_on_after_a_restart_of_the_server_until_a_signal(
    server: IggyServer,
    warehouse: Warehouse,
    follow: Callable[..., Follower],
    how: signal.Signals,
) -> None:
    follower = follow()
    for times in (1, 2):
        fill(server, *TOPICS)
        wait_until(
            lambda now=times: all(held(warehouse, topic) == each_once(now) for topic in TOPICS),  # type: ignore[misc]
            follower,
        )
        server.stop()
        server.start()
    assert follower.end(how) == 0, follower.said
    for topic in TOPICS:
        assert f"{topic}: copied {2 * WHOLE} messages in " in follower.printed
    assert [each.value.messages for each in warehouse.sync_topics() if each.value] == [0] * 3
    server.stop()
    away = follow()
    assert away.wait() == 5, away.said
    assert away.said.count("start the server") == 2 * len(TOPICS)


def test_a_server_that_admits_nobody_ends_the_process(
    server: IggyServer,
    warehouse: Warehouse,
    follow: Callable[..., Follower],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("IGGY_PASSWORD", f"not {PASSWORD}")
    follower = follow()
    assert follower.wait() == 5
    assert follower.said.count("it does not admit the user iggy") == 2 * len(TOPICS)
    assert PASSWORD not in follower.said
    assert server.address in follower.said
    assert not any(held(warehouse, topic) for topic in TOPICS)
