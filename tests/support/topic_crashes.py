"""Topics for crash scenarios: the logs of two partitions, one with a reader."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from retention.api.warehouse import Warehouse, open_warehouse
from tests.support import topics
from tests.support.iggy_logs import Message, log_09, written
from tests.support.topics import Clock, World, line

NAME = topics.NAME

_FIRST_US = 1_700_000_000_000_000
_SECOND_US = 1_000_000


def with_logs(folder: Path, format_: str) -> None:
    """Three segments of partition 0, two of partition 1, and a topic to import them into."""
    partitions = {
        "0": {base: _log(base, 10) for base in (0, 10, 20)},
        "1": {base: _log(base, 5) for base in (0, 5)},
    }
    directory = written(folder / "iggy", partitions)
    offsets = directory / "partitions" / "0" / "offsets" / "consumers"
    offsets.mkdir(parents=True)
    (offsets / "7").write_bytes(struct.pack("<Q", 12))
    topic = {"name": NAME, "partitions": 2, "message_expiry": "60s", "segment_size": "1MiB"}
    config = {"defaults": {"format": format_}, "topics": [topic]}
    (folder / "retention.yaml").write_text(json.dumps(config), encoding="utf-8")


def rolling(folder: Path, format_: str) -> None:
    """Some messages in both partitions, sealed by `roll_after`, and a nearly full segment."""
    said = {"message_expiry": "60s", "roll_after": "60s"}
    world = World(folder, format_, said, Clock(_FIRST_US * 1_000))
    world.topic.publish([line("x" * 700_000, partition=0), line("b", partition=1)])


def publish(folder: Path, now_ns: int) -> None:
    """Publish two batches; older segments are sealed by age, and the second batch fills the segment of the first."""
    topic = open_warehouse(folder / "retention.yaml", engine="local", clock=Clock(now_ns)).topic(
        NAME
    )
    for batch in (1, 2):
        topic.publish(
            [line("y" * 600_000, partition=0), line("z"), line("k", key="k")], "app", batch
        )


def import_logs(warehouse: Warehouse, folder: Path) -> None:
    """Import the logs."""
    warehouse.topic(NAME).import_iggy_log(folder / "iggy")


def _log(base: int, count: int) -> bytes:
    return log_09(
        [
            Message(offset, timestamp=_FIRST_US + offset * _SECOND_US)
            for offset in range(base, base + count)
        ]
    )
