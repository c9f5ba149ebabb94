"""Sources ingested hourly by processes that are killed at random moments: each row once, in order, with its time.

`make long NAME=ingests` lives through a month, kills included; `make test` leaves it out.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from retention.api.warehouse import open_warehouse
from retention.core.subject_tokens import subject_token
from tests.support.growing_sources import (
    FIRST_ROWS,
    HOUR_S,
    KAFKA_PARTITIONS,
    ROWS,
    START_S,
    event_rows,
    line_rows,
)
from tests.support.processes import ROOT

HOURS = int(os.environ.get("RETENTION_INGEST_HOURS", "0"))
KILL_EVERY_S = float(os.environ.get("RETENTION_INGEST_KILL_S", "300"))
"""The mean time before a process is killed; it needs half a minute to start."""
SECOND = 10**9
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not HOURS, reason="an hour for a month of ingests: `make long NAME=ingests`"
    ),
]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sources grown for `HOURS`, completely ingested."""
    folder, dice = tmp_path_factory.mktemp("hours"), random.Random(HOURS)
    command = [sys.executable, "-m", "tests.support.growing_sources", str(folder), str(HOURS)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    kills = 0
    while True:
        process = subprocess.Popen(command, env=environment)
        try:
            code = process.wait(dice.expovariate(1 / KILL_EVERY_S) + 12)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert code == 0
        break
    print(f"{HOURS} hours with {kills} kills")
    return folder


def held(folder: Path, name: str) -> pa.Table:
    return pa.concat_tables(open_warehouse(folder, engine="local").stream(name).messages())


def test_every_row_of_the_delta_table_came_once_in_order_with_its_time(lived: Path) -> None:
    rows = held(lived, "EVENTS")
    ids = np.array([json.loads(payload)["id"] for payload in rows["payload"].to_pylist()])
    expected = [event_rows(hour) for hour in range(-1, HOURS)]
    assert len(ids) == FIRST_ROWS + HOURS * ROWS
    assert np.array_equal(np.sort(ids), np.arange(len(ids)))
    times = np.concatenate([times for _, times in expected])
    stored = rows["ts_ns"].to_numpy()
    assert np.array_equal(stored, times[ids] * SECOND)
    came = np.maximum((ids - FIRST_ROWS) // ROWS, 0) * (ids >= FIRST_ROWS)
    assert (np.diff(came) >= 0).all(), "an hour after a later one"
    later = came[1:] > 0
    together = (np.diff(came) == 0) & later
    assert (np.diff(stored)[together] >= 0).all(), "not by time within an hour"


def test_every_record_of_kafka_came_once_in_order_of_its_offset(lived: Path) -> None:
    rows = held(lived, "SHOP")
    assert rows.num_rows == HOURS * ROWS * KAFKA_PARTITIONS
    newest = dict.fromkeys(range(KAFKA_PARTITIONS), -1)
    stored = zip(*(rows[name].to_pylist() for name in ("subject", "ts_ns", "headers")), strict=True)
    partition_of = {
        "shop." + subject_token(f"user {partition}.{offset}"): (partition, offset)
        for partition in range(KAFKA_PARTITIONS)
        for offset in range(HOURS * ROWS)
    }
    for subject, ts_ns, headers in stored:
        partition, offset = partition_of[subject]
        assert offset == newest[partition] + 1
        newest[partition] = offset
        assert ts_ns == (START_S + offset // ROWS * HOUR_S - offset % 3) * SECOND
        assert (b"KV-Operation: DEL" in (headers or b"")) == (offset % 50 == 49)


def test_every_line_came_once_with_its_time(lived: Path) -> None:
    rows = held(lived, "LINES")
    ids = [json.loads(payload)["id"] for payload in rows["payload"].to_pylist()]
    expected = {row.id: row.at_s * SECOND for hour in range(HOURS) for row in line_rows(hour)}
    assert len(ids) == len(expected)
    assert dict(zip(ids, rows["ts_ns"].to_pylist(), strict=True)) == expected
