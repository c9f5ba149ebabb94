"""Appends of real servers, published again batch by batch at their original times: equal rows and segments."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from tests.conformance.test_topics import FORMATS, logged, stored, topic_of
from tests.support.iggy_logs import NAMES, ORIGINALS, original

Row = dict[str, Any]


class Clock:
    """A manual clock."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def warehouse_of(folder: Path, topic: dict[str, Any], table_format: str, clock: Clock) -> Warehouse:
    folder.mkdir()
    config = {"defaults": {"format": table_format}, "topics": [topic]}
    path = folder / "retention.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return open_warehouse(path, engine="local", clock=clock)


TOGETHER = 12


def batches_of(rows: list[Row], era: str) -> Iterator[list[Row]]:
    """The batches of appends: in 0.9, neighbours with equal times.

    In 0.8, the clock did not advance between many appends, and logs have no batches. There each
    partition got one message, then twelve at a time, which is consistent with all of its segments.
    """

    def mark(row: Row) -> tuple[int, int]:
        append = row["ts_ns"] if era == "0.9" else (row["seq"] + TOGETHER - 1) // TOGETHER
        return row["partition"], append

    for _, batch in groupby(rows, key=mark):
        yield list(batch)


def line(row: Row) -> str:
    given = {
        "partition": row["partition"],
        "id": row["msg_id"],
        "data_b64": b64encode(row["payload"]).decode(),
        "headers_b64": row["headers"] and b64encode(row["headers"]).decode(),
        "origin_ts_ns": row["origin_ts_ns"],
    }
    return json.dumps(given)


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_published_again_a_topic_is_what_the_server_made_of_it(
    name: str, table_format: str, tmp_path: Path
) -> None:
    manifest = json.loads((ORIGINALS / name / "manifest.json").read_text())
    directory = original(name, "before", tmp_path)
    rows = logged(directory, manifest["era"])
    clock = Clock()
    topic = topic_of(manifest, "orders", len(manifest["before"]))
    stream = warehouse_of(tmp_path / "lake", topic, table_format, clock).topic("orders")
    for batch in batches_of(rows, manifest["era"]):
        clock.now_ns = batch[0]["ts_ns"]
        stream.publish([line(row) for row in batch])
    names = list(rows[0])
    assert [{key: row[key] for key in names} for row in stored(stream)] == rows
    bases = stream.opened.store.snapshot().counters.open_base
    assert bases == {
        int(partition): segments[-1][0] for partition, segments in manifest["before"].items()
    }
