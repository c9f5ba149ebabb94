"""Copies of a live server's streams in the DAGs: a real server, stopped and started, by Airflow's own `dag.test()`."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.test_runs import client, entry_of  # noqa: F401  (a fixture)
from tests.airflow.world import ENGINE, World, load

PUBLISHING = """
import asyncio, nats, sys

async def publish(url, stream, number):
    client = await nats.connect(url)
    server = client.jetstream()
    await server.add_stream(name=stream, subjects=[f"{stream.lower()}.>"])
    for at in range(int(number)):
        await server.publish(f"{stream.lower()}.{at}", b"x")
    await client.close()

asyncio.run(publish(*sys.argv[1:]))
"""
"""A program that publishes a number of messages to a stream, which it makes if it does not exist."""


@dataclass
class Server:
    """A NATS server whose streams outlive it."""

    store: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        """Its address."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [ENGINE / "bin" / "nats-server", "-js", "-sd", self.store, "-a", "127.0.0.1"]
        self.process = subprocess.Popen([*map(str, command), "-p", str(self.port)])
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < end, "waited for too long"
                time.sleep(0.1)
            else:
                return

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def publish(self, stream: str, number: int) -> None:
        """Publish messages to a stream."""
        program = [str(ENGINE / "bin" / "python"), "-c", PUBLISHING]
        subprocess.run([*program, self.url, stream, str(number)], check=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with five messages in each of two streams."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(tmp_path / "nats", port)
    server.start()
    server.publish("CLICKS", 5)
    server.publish("PRICES", 5)
    yield server
    server.kill()


def copying(world: World, server: Server, *more: str) -> World:
    """The world with one due stream of its own, and two copies; one of them replays."""
    world.fill("ORDERS")
    sync = f"sync: {{server: '{server.url}'}}"
    lines = (
        "warehouse: .",
        "streams:",
        "  - {name: ORDERS, subjects: [orders.>], max_age: 7d}",
        f"  - {{name: CLICKS, {sync}, max_age: 365d}}",
        f"  - {{name: PRICES, {sync}, mode: replay, max_msgs: 2}}",
        *more,
    )
    world.config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return world


def states(run: Any) -> dict[str, str]:
    """The state of each task of a run, of a mapped one by its name."""
    return {
        f"{ti.task_id} {ti.rendered_map_index or ''}".strip(): str(ti.state)
        for ti in run.get_task_instances()
    }


def test_each_copy_is_synced_before_its_pass_and_a_lost_server_blocks_copies_alone(
    home: Path,
    world: World,
    server: Server,
    client: Any,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    copying(world, server)
    dag = load(world.write_dag_file(home / "dags"))
    run = dag.test()
    assert run.state == "success"
    done = states(run)
    assert [done[f"CLICKS.{step}"] for step in ("sync", "plan", "apply")] == [
        *("success", "skipped", "skipped")
    ]
    assert [done[f"PRICES.{step}"] for step in ("sync", "plan", "apply")] == ["success"] * 3
    left = {name: world.messages(name) for name in ("ORDERS", "CLICKS", "PRICES")}
    assert left == {"ORDERS": 4, "CLICKS": 5, "PRICES": 2}
    counts = entry_of(client, run, "CLICKS.sync", "return_value")
    assert (counts["messages"], counts["behind"]) == (5, 0)
    server.publish("CLICKS", 2)
    server.kill()
    run = dag.test()
    assert run.state == "failed"
    done = states(run)
    assert (done["CLICKS.sync"], done["CLICKS.plan"]) == ("failed", "upstream_failed")
    own = {state for task, state in done.items() if task.startswith("ORDERS.")}
    assert own <= {"success", "skipped"}
    sentence = r"retention CLICKS\.sync failed: CLICKS: 127.0.0.1:\d+: .*start the server, or"
    assert re.search(sentence, caplog.text)
    # A server that does not answer may answer later: each sync was tried four times.
    assert len([*world.reports.glob(f"retention/{run.run_id}/CLICKS.sync.*.json")]) == 4
    server.start()
    assert dag.test().state == "success"
    assert world.messages("CLICKS") == 7


def test_a_batch_syncs_its_copies_first_and_goes_on_without_one_that_fails(
    home: Path,
    world: World,
    server: Server,
    client: Any,  # noqa: F811
) -> None:
    lost = f"  - {{name: LOST, sync: {{server: '{server.url}'}}, max_age: 1d}}"
    copying(world, server, lost)
    dag = load(world.write_dag_file(home / "dags", batch=4))
    run = dag.test()
    assert run.state == "failed"
    done = states(run)
    assert [done[f"batch-1.{step}"] for step in ("sync", "apply", "outcomes")] == ["success"] * 3
    assert done["batch-1.failed LOST"] == "failed"
    left = {name: world.messages(name) for name in ("ORDERS", "CLICKS", "PRICES")}
    assert left == {"ORDERS": 4, "CLICKS": 5, "PRICES": 2}
    synced = entry_of(client, run, "batch-1.sync", "counts")
    assert (synced["streams"], synced["changed"], synced["messages"]) == (3, 2, 10)
    applied = entry_of(client, run, "batch-1.apply", "counts")
    assert (applied["streams"], applied["failed"]) == (3, 0)
    dry = load(world.write_dag_file(home / "dags", batch=4)).test(run_conf={"dry_run": True})
    assert states(dry)["batch-1.sync"] == "skipped"
    assert states(dry)["batch-1.plan"] == "success"
    own = load(world.write_dag_file(home / "dags", batch=4)).test(run_conf={"streams": ["ORDERS"]})
    assert [states(own)[f"batch-1.{step}"] for step in ("sync", "apply")] == ["skipped", "success"]
    gone = load(world.write_dag_file(home / "dags", batch=4)).test(run_conf={"streams": ["LOST"]})
    assert [states(gone)[f"batch-1.{step}"] for step in ("sync", "apply", "plan")] == [
        *("success", "skipped", "skipped")
    ]
    assert states(gone)["batch-1.failed LOST"] == "failed"
