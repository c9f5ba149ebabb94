"""A streaming query that reads a live stream into its copy is killed: what the server holds is copied, once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.api.warehouse import open_warehouse
from retention.storage.crash_points import CRASH_AT, PAUSE_AT, STEPS_LOG, Step
from tests.live.test_sync_kills import NAME, SEED, assert_holds_all_of
from tests.support.killable_server import KillableServer, Load, Pace
from tests.support.processes import Started, python
from tests.support.sandboxes import configured

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.spark]

KILLS = int(os.environ.get("RETENTION_QUERY_KILLS", "2"))
"""How often the query is killed: `make long NAME=queries` has 10."""
STEPS = (Step.DELTA_COMMITTED, Step.DATA_WRITTEN, Step.DELTA_COMMITTING)
"""The moments of kills, in turn: after a commit that the checkpoint lacks, in a task, and before a commit."""
IN_A_TASK = Step.DATA_WRITTEN
LIMITS: dict[str, Any] = {"max_msgs": 60_000, "max_msgs_per_subject": 8_000}
SLOW = Pace(pause_s=0.3, left=range(20_000, 40_000))
"""A query needs minutes on a busy machine, and what it reads must be there then."""
BACKLOG = 500
"""The fewest new sequences when a query starts, so that it has something to commit."""
MOST_READ = 5_000
PATIENCE_S = 3_600.0
"""The wait after which a query counts as hanging, seconds; a busy machine gives it little of its time."""
CHEAP_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
QUERY = f"""
import sys
from pathlib import Path
import retention
from retention.engines.spark.session import build_session
from retention.ingest.sync.session import SyncOptions
from tests.support.streaming_queries import run_query

folder = Path(sys.argv[1])
spark = build_session("query", java_options="{CHEAP_JAVA}")
retention.register(spark)
copy = retention.open_warehouse(folder / "retention.yaml").stream("COPY")
live = spark.readStream.format("nats").options(
    server=sys.argv[2], failOnDataLoss="false", maxMessagesPerTrigger={MOST_READ}
)
sink = copy.sync_sink(SyncOptions(max_missed=10**9))
writer = live.load(sys.argv[3]).writeStream.foreachBatch(sink)
run_query(writer.option("checkpointLocation", str(folder / "checkpoint")))
"""


class Query:
    """A process with the query, and the steps that it reaches."""

    def __init__(self, folder: Path, server: KillableServer, **watched: str) -> None:
        self._steps = folder / "steps"
        self._steps.unlink(missing_ok=True)
        self._log = folder / "query.log"
        words = [python(), "-c", QUERY, str(folder), server.url, NAME]
        command = ["sh", "-c", f'exec "$@" > {self._log} 2>&1', "query", *words]
        self._started = Started(command, folder, watched | {STEPS_LOG: str(self._steps)})

    def steps(self) -> list[str]:
        """The steps reached so far, in order."""
        return self._steps.read_text().splitlines() if self._steps.exists() else []

    def kill_at(self, step: str) -> None:
        """Kill the driver when a task has reached a step and waits there, and then the tasks."""
        until = time.monotonic() + PATIENCE_S
        process = self._started.process
        while step not in self.steps() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()

    def end(self) -> tuple[int, str]:
        """Wait for its end, and kill what is left; returns the exit code, and the end of its output."""
        try:
            code = self._started.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the query hangs after {self.steps()}: {self._said()}")
        finally:
            self._started.kill_all()
            if self._started.process.stdout is not None:
                self._started.process.stdout.close()
        return code, self._said()

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:] if self._log.exists() else ""


def kill_one(folder: Path, server: KillableServer, step: Step) -> None:
    """Start the query, and kill its driver with SIGKILL at a step, which it must reach."""
    query = Query(folder, server, **{PAUSE_AT if step is IN_A_TASK else CRASH_AT: step})
    if step is IN_A_TASK:
        query.kill_at(step)
    code, said = query.end()
    assert code == -signal.SIGKILL, f"the query ended by itself with {code}, not at {step}: {said}"
    assert step in query.steps(), f"killed before {step}, after {query.steps()}: {said}"


def position(copy: Stream) -> int:
    """The last sequence that was copied."""
    store = copy.opened.store
    return store.snapshot().counters.next_seq.get(0, 1) - 1 if store.exists() else 0


def wait_for(load: Load, seq: int) -> None:
    """Wait until the load has published up to a sequence."""
    until = time.monotonic() + PATIENCE_S
    while load.published < seq:
        assert time.monotonic() < until, "the load publishes nothing"
        time.sleep(0.05)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KillableServer]:
    started = KillableServer(tmp_path)
    started.start()
    yield started
    started.kill()


def test_a_killed_query_copies_each_message_once(
    server: KillableServer, tmp_path: Path, record_testsuite_property: Any
) -> None:
    with server.connected() as connection:
        connection.request(
            f"STREAM.CREATE.{NAME}", {"name": NAME, "subjects": [f"{NAME}.>"], **LIMITS}
        )
    sync = {"server": server.url, "stream": NAME}
    configured(tmp_path, {"name": "COPY", "format": "delta", "sync": sync})
    copy = open_warehouse(tmp_path / "retention.yaml").stream("COPY")
    with Load(server, NAME, SEED, SLOW) as load:
        for kill in range(KILLS):
            step, before = STEPS[kill % len(STEPS)], position(copy)
            wait_for(load, before + BACKLOG)
            kill_one(tmp_path, server, step)
            is_committed = step is Step.DELTA_COMMITTED
            assert (position(copy) > before) == is_committed, f"{step}: {before} before"
            print(f"killed at {step}: {before} to {position(copy)} of {load.published}", flush=True)
    code, said = Query(tmp_path, server).end()
    assert code == 0, said
    with server.connected() as connection:
        state = connection.info(NAME)["state"]
        connection.snapshot(NAME, tmp_path / "now.arc")
    assert copy.sync().messages == 0, "the query was up to the end"
    assert_holds_all_of(tmp_path)
    record_testsuite_property("queries", f"{KILLS} kills, {state['last_seq']}")
    print(f"{KILLS} kills of the query, {state['last_seq']:,} sequences")
