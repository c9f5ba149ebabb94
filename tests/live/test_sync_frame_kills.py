"""A streaming query that reads a live stream into its copy is killed: what the server holds is copied, once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.storage.crash_points import CRASH_AT, Step
from tests.live.test_sync_kills import LIMITS, NAME, SEED, assert_holds_all_of
from tests.support.killable_server import KillableServer, Load
from tests.support.sandboxes import configured

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.spark]

KILLS = int(os.environ.get("RETENTION_QUERY_KILLS", "2"))
"""How often the query is killed: `make long NAME=queries` has 10."""
ROOT = Path(__file__).parents[2]
STEPS = (Step.DELTA_COMMITTED, Step.DATA_WRITTEN, "")
"""The moments of kills, in turn: after a commit that the checkpoint lacks, in a task, and at random."""
QUERY = """
import sys
from pathlib import Path
import retention
from retention.engines.spark.session import build_session
from retention.ingest.sync.session import SyncOptions

folder = Path(sys.argv[1])
spark = build_session("query", java_options="-XX:TieredStopAtLevel=1")
retention.register(spark)
copy = retention.open_warehouse(folder / "retention.yaml").stream("COPY")
live = spark.readStream.format("nats").options(
    server=sys.argv[2], failOnDataLoss="false", maxMessagesPerTrigger=500
)
sink = copy.sync_sink(SyncOptions(max_missed=10**9))
writer = live.load(sys.argv[3]).writeStream.foreachBatch(sink).trigger(availableNow=True)
print("started", flush=True)
writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
"""


def query(folder: Path, server: KillableServer, crash_at: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", QUERY, str(folder), server.url, NAME]
    environment = os.environ | {CRASH_AT: crash_at}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_killed_query_copies_each_message_once(
    tmp_path: Path, record_testsuite_property: Any
) -> None:
    chance = random.Random(SEED)
    server = KillableServer(tmp_path)
    server.start()
    with server.connected() as connection:
        connection.request(
            f"STREAM.CREATE.{NAME}", {"name": NAME, "subjects": [f"{NAME}.>"], **LIMITS}
        )
    sync = {"server": server.url, "stream": NAME}
    configured(tmp_path, {"name": "COPY", "format": "delta", "sync": sync})
    with Load(server, NAME, SEED) as load:
        for kill in range(KILLS):
            step = STEPS[kill % len(STEPS)]
            running = query(tmp_path, server, step)
            assert running.stdout is not None
            assert running.stdout.readline() == "started\n"
            if not step:
                time.sleep(chance.uniform(0, 6))
                running.kill()
            running.communicate(timeout=300)
            assert running.returncode != 0, "it was killed, or a task of it"
    last = query(tmp_path, server)
    _, said = last.communicate(timeout=300)
    assert last.returncode == 0, said
    copy = open_warehouse(tmp_path / "retention.yaml").stream("COPY")
    with server.connected() as connection:
        state = connection.info(NAME)["state"]
        connection.snapshot(NAME, tmp_path / "now.arc")
    assert copy.sync().messages == 0, "the query was up to the end"
    server.kill()
    assert load.published > 0
    assert_holds_all_of(tmp_path)
    record_testsuite_property("queries", f"{KILLS} kills, {state['last_seq']}")
    print(f"{KILLS} kills of the query, {state['last_seq']:,} sequences")
