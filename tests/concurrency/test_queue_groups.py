"""Several processes work on one consumer of a work queue: each message is settled once, and given to one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retention.warehouse import open_warehouse
from tests.support.consuming import noted, prepare
from tests.support.crew import ROOT

pytestmark = pytest.mark.slow

WORKERS = 4 if "RETENTION_CONCURRENCY" in os.environ else 2
MESSAGES, BATCH = 2_000, 100


@pytest.mark.parametrize("naks", [0.0, 0.1])
def test_each_message_is_settled_once_and_then_the_stream_is_empty(
    tmp_path: Path, naks: float
) -> None:
    prepare(tmp_path, 4, MESSAGES // 4)
    diaries = [f"worker-{number}" for number in range(WORKERS)]
    module = [sys.executable, "-m", "tests.support.consuming", str(tmp_path)]
    running = [
        subprocess.Popen([*module, name, str(BATCH), str(naks)], cwd=ROOT) for name in diaries
    ]
    assert [process.wait(300) for process in running] == [0] * WORKERS
    lines = [line for name in diaries for line in noted(tmp_path / name)]
    given = [seq for line in lines for seq in line.get("given", [])]
    returned = [seq for line in lines for seq in line.get("returned", [])]
    assert len(given) == MESSAGES + len(returned)
    assert set(given) == set(range(1, MESSAGES + 1))
    assert sum(line.get("settled", 0) for line in lines) == MESSAGES
    stream = open_warehouse(tmp_path / "retention.yaml", engine="local").stream("ORDERS")
    stream.plan().apply()
    assert stream.state().messages == 0
