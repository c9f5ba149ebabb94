from __future__ import annotations

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.formats.iggy import user_headers
from retention.formats.iggy.findings import Hole
from retention.formats.iggy.topic import ERAS, TopicDirectory, era_of, read_topic
from tests.support.iggy_logs import NAMES, ORIGINALS, original

MOMENTS = [(name, moment) for name in NAMES for moment in ("before", "after")]


def manifest(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ORIGINALS / name / "manifest.json").read_text())
    return content


def everything(topic: TopicDirectory, era: Any) -> tuple[pa.Table, list[Any]]:
    parts = list(topic.parts(ERAS[era]))
    rows = pa.Table.from_batches([part.rows for part in parts])
    return rows, [finding for part in parts for finding in part.findings]


def stored_checksums(topic: TopicDirectory, rows: pa.Table) -> list[int]:
    """The leading checksum of each message, at the position given by the sizes of earlier messages."""
    found = []
    for log in (log for partition in topic.partitions for log in partition.logs):
        content, end = Path(log.location).read_bytes(), 0
        for row in rows.to_pylist():
            if (row["partition"], row["segment"]) == (log.partition, log.segment):
                end += row["size"]
                body = len(row["payload"]) + len(row["headers"] or b"")
                header = 64 if row["size"] == 64 + body else 48
                found.append(int.from_bytes(content[end - body - header :][:8], "little"))
        assert end == log.size
    return found


def typed(one: user_headers.Typed) -> dict[str, str]:
    return {"kind": one.kind, "value": base64.b64encode(one.content).decode()}


def polled(row: dict[str, Any], checksum: int) -> dict[str, Any]:
    """A row in the form of a polled message in the conformance cases."""
    pairs = user_headers.parse(row["headers"] or b"")
    return {
        "topic": "orders",
        "partition": row["partition"],
        "offset": row["seq"],
        "timestamp": row["ts_ns"] // 1_000,
        "origin_timestamp": row["origin_ts_ns"] // 1_000,
        "checksum": checksum,
        "id": row["msg_id"],
        "payload_len": len(row["payload"]),
        "payload_sha256": hashlib.sha256(row["payload"]).hexdigest(),
        "user_headers": [{"key": typed(key), "value": typed(value)} for key, value in pairs],
    }


@pytest.mark.parametrize(("name", "moment"), MOMENTS)
def test_every_message_is_read_as_the_server_delivered_it(
    name: str, moment: str, tmp_path: Path
) -> None:
    topic = read_topic(str(original(name, moment, tmp_path)))
    rows, _ = everything(topic, manifest(name)["era"])
    checksums = stored_checksums(topic, rows)
    lines = [
        json.dumps(polled(row, checksum)) + "\n"
        for row, checksum in zip(rows.to_pylist(), checksums, strict=True)
    ]
    with gzip.open(ORIGINALS / name / f"{moment}.messages.jsonl.gz", "rb") as file:
        assert "".join(lines).encode() == file.read()


@pytest.mark.parametrize(("name", "moment"), MOMENTS)
def test_segments_are_those_that_the_server_had(name: str, moment: str, tmp_path: Path) -> None:
    rows, _ = everything(read_topic(str(original(name, moment, tmp_path))), manifest(name)["era"])
    grouped = rows.group_by(["partition", "segment"], use_threads=False).aggregate(
        [("seq", "max"), ("ts_ns", "first"), ("ts_ns", "last"), ("ts_ns", "max"), ("size", "sum")]
    )
    found: dict[str, list[list[int]]] = {}
    for row in grouped.to_pylist():
        times = [row[f"ts_ns_{which}"] // 1_000 for which in ("first", "last", "max")]
        segment = [row["segment"], row["seq_max"], *times, row["size_sum"]]
        found.setdefault(str(row["partition"]), []).append(segment)
    said = manifest(name)[moment]
    assert found == {
        partition: [segment[:-1] for segment in segments] for partition, segments in said.items()
    }


@pytest.mark.parametrize(("name", "moment"), MOMENTS)
def test_stored_offsets_are_those_that_the_server_had(
    name: str, moment: str, tmp_path: Path
) -> None:
    topic = read_topic(str(original(name, moment, tmp_path)))
    found = {
        (partition.number, one.kind, one.id, one.offset)
        for partition in topic.partitions
        for one in partition.stored_offsets
    }
    said = {
        (one["partition"], "consumer", int(Path(one["file"]).name), one["offset"])
        for one in manifest(name)["stored_offsets"]
    }
    assert found == said


@pytest.mark.parametrize(("name", "moment"), MOMENTS)
def test_the_era_is_found_and_the_hole_that_a_server_left_is_named(
    name: str, moment: str, tmp_path: Path
) -> None:
    topic = read_topic(str(original(name, moment, tmp_path)))
    era = manifest(name)["era"]
    assert era_of(topic) == era
    left = [Hole(topic.partitions[0].directory, 205, 420)]
    _, findings = everything(topic, era)
    assert findings == (left if (name, moment) == ("v8-hole", "after") else [])
