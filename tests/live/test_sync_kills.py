"""Syncs under load whose process and server are killed: what the server holds at the end is copied, once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention.api.warehouse import open_warehouse
from tests.support.killable_server import KillableServer, Load
from tests.support.sandboxes import configured, opened

pytestmark = [pytest.mark.live, pytest.mark.slow]

KILLS = int(os.environ.get("RETENTION_SYNC_KILLS", "3"))
"""How often the sync is killed, and twice in five times the server: `make long NAME=sync` has 50."""
SEED = 20261128
NAME = "LOAD"
LIMITS: dict[str, Any] = {"max_msgs": 3_000, "max_msgs_per_subject": 400}
COMMAND = [str(Path(sys.executable).parent / "retention"), "sync", "nats", "COPY"]
BOUNDS = ["--max-missed", "1000000000", "--batch-messages", "300", "--batch-bytes", "256KiB"]


def sync(folder: Path, *options: str) -> subprocess.Popen[str]:
    words = [*COMMAND, *BOUNDS, *options, "--config", str(folder / "retention.yaml")]
    words += ["--format", "json"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The entry of a sync that ended well."""
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    (entry,) = json.loads(printed)["streams"]
    return dict(entry)


def test_everything_is_copied_once_over_kills_of_the_sync_and_of_the_server(
    tmp_path: Path, record_testsuite_property: Any
) -> None:
    chance = random.Random(SEED)
    server = KillableServer(tmp_path)
    server.start()
    with server.connected() as connection:
        connection.request(
            f"STREAM.CREATE.{NAME}", {"name": NAME, "subjects": [f"{NAME}.>"], **LIMITS}
        )
    configured(tmp_path, {"name": "COPY", "sync": {"server": server.url, "stream": NAME}})
    restarts = 0
    with Load(server, NAME, SEED) as load:
        for kill in range(KILLS):
            process = sync(tmp_path, chance.choice(("--once", "--follow")))
            time.sleep(chance.uniform(0.8, 3.0))
            if kill % 5 in (1, 3):
                server.kill()
                restarts += 1
                time.sleep(chance.uniform(0, 0.5))
                server.start()
                time.sleep(chance.uniform(0, 1.5))
            process.kill()
            process.communicate()
        ended(sync(tmp_path, "--once"))
    final = ended(sync(tmp_path, "--once"))
    with server.connected() as connection:
        state = connection.info(NAME)["state"]
        connection.snapshot(NAME, tmp_path / "now.arc")
    server.kill()
    assert (final["position"], final["behind"]) == (state["last_seq"], 0)
    assert load.published > 0
    assert_holds_all_of(tmp_path)
    record_testsuite_property("sync", f"{KILLS} kills, {restarts} restarts, {state['last_seq']}")
    print(f"{KILLS} kills of the sync, {restarts} of the server, {state['last_seq']:,} messages")


def assert_holds_all_of(folder: Path) -> None:
    """The copy holds every message of the backup, byte for byte, and no sequence twice."""
    imported = opened(folder / "imported", {"name": "COPY", "subjects": [">"], "no_ack": True})
    imported.new_stream("COPY").import_nats_backup(folder / "now.arc")
    columns = ["seq", "subject", "ts_ns", "headers", "payload", "size", "msg_id"]
    server, copy = (
        pa.concat_tables(warehouse.stream("COPY").messages()).select(columns)
        for warehouse in (imported, open_warehouse(folder / "retention.yaml", clock=lambda: 1))
    )
    assert server.num_rows
    assert len(pc.unique(copy["seq"])) == copy.num_rows
    assert copy.filter(pc.is_in(copy["seq"], value_set=server["seq"].combine_chunks())).equals(
        server
    )


def wait_for_files(folder: Path, count: int) -> None:
    """Wait until a copy has this many data files; every commit adds one."""
    for _ in range(600):
        if len(list(folder.rglob("messages/**/*.parquet"))) >= count:
            return
        time.sleep(0.1)
    raise TimeoutError(f"fewer than {count} data files after a minute")


def copied_server(folder: Path) -> KillableServer:
    """A started server with an empty stream, and the configuration of a copy of it."""
    server = KillableServer(folder)
    server.start()
    with server.connected() as connection:
        connection.request(f"STREAM.CREATE.{NAME}", {"name": NAME, "subjects": [f"{NAME}.>"]})
    configured(folder, {"name": "COPY", "sync": {"server": server.url, "stream": NAME}})
    return server


def test_a_followed_stream_ends_well_on_sigterm(tmp_path: Path) -> None:
    server = copied_server(tmp_path)
    with Load(server, NAME, SEED):
        process = sync(tmp_path, "--follow")
        wait_for_files(tmp_path, 4)
        process.terminate()
        entry = ended(process)
    assert entry["ended"] == "signal"
    assert entry["messages"] > 0
    assert entry["commits"] >= 2
    server.kill()


IN_A_SEARCH = """
import os, signal, sys
from retention.cli.main import main
from retention.nats import places

def sizes(view, ends, real=places._sizes):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(view, ends)

places._sizes = sizes
sys.exit(main())
"""
"""The command, with a signal while it looks for messages in what it has received."""


def test_a_signal_in_a_search_for_messages_ends_a_sync_at_once(tmp_path: Path) -> None:
    server = copied_server(tmp_path)
    with Load(server, NAME, SEED) as load:
        while load.published < 2_000:
            time.sleep(0.05)
    words = ["sync", "nats", "COPY", "--follow", "--config", str(tmp_path / "retention.yaml")]
    command = [sys.executable, "-c", IN_A_SEARCH, *words, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=25)
    assert json.loads(done.stdout)["streams"][0]["ended"] == "signal"
    assert "Traceback" not in done.stderr
    server.kill()
