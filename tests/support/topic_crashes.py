"""Topics for crash scenarios: the logs of two partitions, one of them read by somebody."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from retention.warehouse import Warehouse
from tests.support.iggy_logs import Message, log_09, written

NAME = "clicks"
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


def import_logs(warehouse: Warehouse, folder: Path) -> None:
    """Import them."""
    warehouse.topic(NAME).import_iggy_log(folder / "iggy")


def _log(base: int, count: int) -> bytes:
    return log_09(
        [
            Message(offset, timestamp=_FIRST_US + offset * _SECOND_US)
            for offset in range(base, base + count)
        ]
    )
