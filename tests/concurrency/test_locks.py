"""Many processes compete for one lock, and die while they hold it: never two holders, no lost release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.core.units import SECOND, parse_duration
from retention.errors import BusyError
from retention.storage import files
from tests.contract.conftest import FORMATS, bucket, server
from tests.support.lock_fight import BUCKET, KEY, held

WHOLE = "RETENTION_LOCKS" in os.environ
TURNS = int(os.environ.get("RETENTION_LOCKS", "8"))
FIGHTERS = 8 if WHOLE else 3
__all__ = ["bucket", "server"]
TTL = "6s"
TTL_FAR = "30s"
"""Storage on which a contended write takes seconds."""
DEATHS = 0.02 if TURNS > 100 else 0.1
WITHIN_S = 60 + 3 * TURNS
MAINTAINED_EVERY = 5 if TURNS < 100 else 50


def maintain(place: str) -> None:
    """Run a nightly job during the competition: a pass, and a compaction of the files of single puts."""
    warehouse = open_warehouse(place)
    with suppress(BusyError):
        warehouse.apply([f"KV_{BUCKET}"])
        warehouse.kv(BUCKET).stream.compact().apply()


def fight(place: str, folder: Path, turns: int, ttl: str) -> list[list[str]]:
    """The log of a competition in which a dead process is replaced by another."""
    content: dict[str, object] = {"buckets": [{"name": BUCKET, "ttl": ttl}]}
    if not files.is_remote(place):
        content |= {"defaults": {"format": Path(place).name}}
    files.replace(f"{place}/retention.yaml", json.dumps(content).encode())
    until, seed, kept_up = time.monotonic() + WITHIN_S, 0, 0
    running: list[subprocess.Popen[bytes]] = []
    try:
        while held(folder) < turns:
            assert time.monotonic() < until, (folder / "log").read_text()
            running = [process for process in running if process.poll() is None]
            for _ in range(FIGHTERS - len(running)):
                command = [sys.executable, "-m", "tests.support.lock_fight", place, str(folder)]
                arguments = [str(turns), str(DEATHS), str(seed := seed + 1)]
                running.append(subprocess.Popen([*command, *arguments]))
            if held(folder) >= kept_up + MAINTAINED_EVERY:
                kept_up = held(folder)
                maintain(place)
            time.sleep(0.1)
        for process in running:
            process.wait(WITHIN_S)
    finally:
        for process in running:
            process.kill()
    return [line.split() for line in (folder / "log").read_text().splitlines()]


def check(place: str, folder: Path, turns: int, ttl: str) -> None:
    log = fight(place, folder, turns, ttl)
    kinds = [what for what, *_ in log]
    assert kinds.count("two") == 0, log
    revisions = [int(revision) for what, revision, *_ in log if what == "held"]
    assert revisions == sorted(set(revisions)), "a fencing token fell"
    assert len(revisions) >= turns
    # Live processes have released it: the next one gets it at once, or after the TTL of a dead holder.
    began = time.monotonic()
    with open_warehouse(place).kv(BUCKET).lock(KEY, wait="1m") as lock:
        assert lock.revision > revisions[-1]
    waited_s = time.monotonic() - began
    assert log[-1][0] == "died" or waited_s < parse_duration(ttl) / SECOND
    history = [entry.operation for entry in open_warehouse(place).kv(BUCKET).history(KEY)]
    assert history == ["delete"]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("table_format", FORMATS if WHOLE else ("delta",))
def test_a_lock_is_in_one_hand(tmp_path: Path, table_format: str) -> None:
    place = tmp_path / table_format
    place.mkdir()
    check(str(place), tmp_path, TURNS, TTL)


@pytest.mark.slow
@pytest.mark.skipif(not WHOLE, reason="`make long NAME=buckets` has the time")
def test_a_lock_on_an_object_store_is_in_one_hand(tmp_path: Path, bucket: str) -> None:
    check(bucket, tmp_path, TURNS // 10, TTL_FAR)
