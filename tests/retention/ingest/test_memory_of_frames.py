"""A frame published or appended in this process is copied in slices, not repeatedly as a whole."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.api.warehouse import open_warehouse
from retention.core import slices
from retention.formats import held_rows, records

ROWS, BYTES = 4_000, 10_000
_POOLS: list[pa.MemoryPool] = []
"""Pools outlive their tests, because memory is returned to them later."""


def frame() -> pa.Table:
    """Forty megabytes of payloads, with unordered subjects."""
    body = np.random.default_rng(0).integers(0, 256, ROWS * BYTES, dtype=np.uint8)
    ends = np.arange(ROWS + 1, dtype=np.int32) * BYTES
    payload = pa.Array.from_buffers(
        pa.binary(), ROWS, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(body.tobytes())]
    )
    return pa.table({"subject": [f"s.{row % 50}" for row in range(ROWS)], "payload": payload})


def log(folder: Path, *, topic: bool) -> Any:
    one = (
        {"topics": [{"name": "S", "partitions": 1}]}
        if topic
        else {"streams": [{"name": "S", "subjects": ["s.>"]}]}
    )
    (folder / "retention.yaml").write_text(json.dumps(one), encoding="utf-8")
    return open_warehouse(folder / "retention.yaml", engine="local").new_stream("S")


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """A pool of this test only, to measure its peak."""
    before = pa.default_memory_pool()
    own = pa.proxy_memory_pool(before)
    _POOLS.append(own)
    pa.set_memory_pool(own)
    yield own
    pa.set_memory_pool(before)


@pytest.mark.parametrize(
    ("topic", "act", "most"),
    [(False, "publish", 1.7), (False, "append", 2.5), (True, "publish", 1.7)],
    ids=["publish", "append", "publish to a topic"],
)
def test_a_frame_takes_about_twice_its_memory(
    tmp_path: Path, pool: pa.MemoryPool, topic: bool, act: str, most: float
) -> None:
    given = frame().drop_columns(["subject"] if topic else [])
    stream, size = log(tmp_path, topic=topic), ROWS * BYTES
    before = pool.bytes_allocated()
    tracemalloc.start()
    try:
        getattr(stream, act)(given)
        python = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pool.max_memory() - before < most * size
    assert python < 0.8 * size


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of a few rows, so that a small frame has many slices."""
    monkeypatch.setattr(slices, "_MOST_ROWS", 7)
    monkeypatch.setattr(held_rows, "_MOST_ROWS", 5)
    monkeypatch.setattr(records, "_ROWS", 3)


def some_rows() -> list[dict[str, Any]]:
    return [
        {
            "subject": f"s.{row * 7 % 11}",
            "payload": f"{row}".encode(),
            "ts_ns": 1_700_000_000 * 10**9 + row % 4,
        }
        for row in range(50)
    ]


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_rows_in_slices_keep_their_order(tmp_path: Path, kind: str) -> None:
    rows = some_rows()
    given = pa.Table.from_pylist(rows)
    given = given.to_pandas() if kind == "pandas" else given
    stream = log(tmp_path, topic=False)
    stream.publish(given)
    stream.append(given)
    stored = [
        (row["seq"], row["subject"], row["payload"], row["ts_ns"])
        for table in stream.messages()
        for row in table.to_pylist()
    ]
    ordered = sorted(rows, key=lambda row: (row["ts_ns"], row["subject"], row["payload"]))
    expected = [tuple(row.values()) for row in [*rows, *ordered]]
    assert stored == [(seq, *row) for seq, row in enumerate(expected, start=1)]


@pytest.mark.usefixtures("small_slices")
def test_rows_that_a_rollup_supersedes_are_left_out_of_slices(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text(
        json.dumps({"streams": [{"name": "S", "subjects": ["s.>"], "allow_rollup_hdrs": True}]})
    )
    stream = open_warehouse(tmp_path / "retention.yaml", engine="local").new_stream("S")
    lines: list[dict[str, Any]] = [
        {"subject": f"s.{row % 3}", "data": str(row)} for row in range(20)
    ]
    lines.append({"subject": "s.1", "data": "all", "headers": {"Nats-Rollup": "sub"}})
    stream.publish(lines)
    kept = [row["seq"] for table in stream.messages() for row in table.to_pylist()]
    assert kept == [*(row + 1 for row in range(20) if row % 3 != 1), 21]


@pytest.mark.usefixtures("small_slices")
def test_keys_scattered_over_partitions_keep_the_order_of_their_lines(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text(
        json.dumps({"topics": [{"name": "S", "partitions": 3}]})
    )
    topic = open_warehouse(tmp_path / "retention.yaml", engine="local").new_stream("S")
    topic.publish(
        pa.table(
            {
                "key": [f"k{row % 5}" for row in range(40)],
                "payload": [str(row) for row in range(40)],
            }
        )
    )
    rows = [row for table in topic.messages() for row in table.to_pylist()]
    assert sorted(int(row["payload"]) for row in rows) == list(range(40))
    for partition in range(3):
        numbers = [int(row["payload"]) for row in rows if row["partition"] == partition]
        assert numbers == sorted(numbers)
