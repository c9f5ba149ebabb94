"""Several processes share a consumer of a work queue: each message is settled once, by one process at a time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.consumer_model import needs
from tests.support.consuming import (
    noted,
    opened_at,
    prepare,
    settled_once,
    start,
    work,
)
from tests.support.laying import SECOND

pytestmark = pytest.mark.slow

WHOLE = os.environ.get("RETENTION_QUEUE")
"""The number of messages for eight processes; by default, few processes share few messages."""
WORKERS = 8 if WHOLE else 4 if "RETENTION_CONCURRENCY" in os.environ else 2
MESSAGES, BATCH = (int(WHOLE), 1_000) if WHOLE else (2_000, 100)
"""The maximum batch; half of it on average."""
DIARIES = [f"worker-{number}" for number in range(WORKERS)]
PATIENCE_S = 1_800
LATER = 4_000_000_000 * SECOND
"""After all ack waits."""


@pytest.mark.thorough
@pytest.mark.parametrize("naks", [0.0, 0.1])
def test_each_message_is_settled_once_and_then_the_stream_is_empty(
    tmp_path: Path, naks: float
) -> None:
    prepare(tmp_path, 4, MESSAGES // 4)
    began = time.monotonic()
    workers = start(tmp_path, DIARIES, BATCH, naks)
    assert [process.wait(PATIENCE_S) for process in workers] == [0] * WORKERS
    print(f"{WORKERS} workers, {MESSAGES:,} messages: {time.monotonic() - began:.1f} s")
    settled_once(tmp_path, DIARIES, MESSAGES)
    stream = opened_at(tmp_path, LATER)
    stream.plan().apply()
    assert stream.state().messages == 0


def test_what_killed_workers_had_is_done_by_another_one(tmp_path: Path) -> None:
    """All except one are killed during their work; then their ack waits expire."""
    prepare(tmp_path, 4, MESSAGES // 4)
    spared, *doomed = start(tmp_path, DIARIES, BATCH, 0.1)
    for process, diary in zip(doomed, DIARIES[1:], strict=True):
        while process.poll() is None and len(noted(tmp_path / diary)) < 2:
            time.sleep(0.01)
        process.kill()
    assert spared.wait(PATIENCE_S) == 0
    [process.wait(PATIENCE_S) for process in doomed]
    stream = opened_at(tmp_path, LATER)
    billing, everything = stream.consumer("billing"), range(1, MESSAGES + 1)
    left = needs("explicit", billing.state, tuple(everything))
    work(billing, tmp_path / "last", BATCH)
    last = noted(tmp_path / "last")
    assert {seq for line in last for seq in line.get("given", [])} == left
    assert sum(line.get("settled", 0) for line in last) == len(left)
    stream.plan().apply()
    assert stream.state().messages == 0
