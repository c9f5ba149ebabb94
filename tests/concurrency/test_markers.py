"""Two processes expire the same subjects concurrently: each gets one marker, and no sequence is assigned twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retention.core.units import HOUR
from tests.support.laying import SECOND, START, held, warehouse_with

pytestmark = pytest.mark.slow

MAINTAINER = """
import sys
from retention.api.warehouse import open_warehouse
for line in sys.stdin:
    instant = int(line)
    [outcome] = open_warehouse(sys.argv[1], engine="local", clock=lambda: instant).apply()
    done = outcome.value
    print(outcome.exit_code, *((done.removed_messages, done.markers) if done else (0, 0)), flush=True)
"""
ROUNDS, DYING = 5, 6
BUSY = 75


def at_once(running: list[subprocess.Popen[str]], instant: int) -> list[list[int]]:
    """Run a pass in each process; returns exit code, removed messages, markers."""
    for process in running:
        assert process.stdin is not None
        process.stdin.write(f"{instant}\n")
        process.stdin.flush()
    answers = []
    for process in running:
        assert process.stdout is not None
        answers.append([int(word) for word in process.stdout.readline().split()])
    return answers


@pytest.mark.thorough
@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_each_death_is_announced_once_whoever_comes_second(tmp_path: Path, format_: str) -> None:
    warehouse = warehouse_with(
        tmp_path, format_, START, allow_msg_ttl=True, subject_delete_marker_ttl="1h"
    )
    stream = warehouse.new_stream("ORDERS")
    command = [sys.executable, "-c", MAINTAINER, str(tmp_path / "retention.yaml")]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    expected: list[tuple[int, str, bool]] = []
    next_seq = 1
    try:
        for number in range(1, ROUNDS + 1):
            instant = START + number * SECOND
            dying = [f"dying.{number}.{n}" for n in range(DYING)]
            lines = [
                {"subject": subject, "ts_ns": instant - HOUR, "headers": {"Nats-TTL": "1h"}}
                for subject in dying
            ]
            lines.append({"subject": "kept", "ts_ns": instant})
            acks = stream.publish([json.dumps({"data": "x", **line}) for line in lines]).acks()
            assert [ack.seq for ack in acks] == list(range(next_seq, next_seq + DYING + 1))
            answers = at_once(running, instant)
            assert {code for code, *_ in answers} in ({0}, {0, BUSY}), answers
            assert sorted(answer[1:] for answer in answers) == [[0, 0], [DYING, DYING]]
            first = next_seq + DYING
            expected += [(first, "kept", False)]
            expected += [(first + n, subject, True) for n, subject in enumerate(dying, start=1)]
            next_seq = first + DYING + 1
            rows = held(warehouse).select(["seq", "subject", "marker"]).to_pylist()
            assert [tuple(row.values()) for row in rows] == expected
    finally:
        for process in running:
            process.communicate(timeout=60)
    done = [record for record in stream.history() if record["status"] == "done"]
    assert sum(record["removed_messages"] for record in done) == ROUNDS * DYING
