"""The demo's fourth part: a topic from an Iggy directory, and a slow reader that holds its segments."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from xxhash import xxh3_64_intdigest, xxh32_intdigest

from retention import open_warehouse
from retention.api.topic import Topic
from retention.core.units import parse_instant
from retention.views.text import plan_headline
from retention.views.text_protected import protected_text
from retention.views.text_topic import settings_text

FROM = "2014-01-01T01:00:00Z"
"""The time of the first click; each log of a partition covers an hour."""
CONFIG = """\
server_defaults: {segment_size: 1MiB}
topics:
  - name: clicks
    stream: shop
    partitions: 3
    message_expiry: 1h             # of whole segments, by their newest message
"""
PARTITIONS, HOURS, A_LOG = 3, 4, 120
READER, SLOW = "billing", 1
"""The slow reader, and its partition."""
_HOUR_US, _LAST = 3_600 * 10**6, HOURS * A_LOG - 1
_PAGES = ("home", "books", "basket")

Tell = Callable[[str, str], None]


def show(directory: Path, as_of: str, tell: Tell) -> None:
    """Import a topic, print removals and held segments, let the reader catch up, and remove these, too."""
    topic = _imported(directory / "clicks")
    state = topic.state(as_of)
    tell(
        "clicks",
        f"{state.messages:,} messages of {PARTITIONS} partitions, imported with offsets and user headers from logs as "
        f"Iggy's server writes them: each of {state.segments} logs is a segment, a partition's last one active",
    )
    if state.topic is not None:
        tell("settings", settings_text(state.topic.settings))
    plan = topic.plan(as_of)
    tell("expired", plan_headline(plan.plan))
    lines = " ".join(line.strip() for line in protected_text(plan.plan.held_as_json))
    tell("held", f"{lines}; by that number the server knows {READER}")
    waiting, active = A_LOG, _LAST
    tell("why", topic.explain(waiting, as_of, SLOW).sentence)
    tell("active", topic.explain(active, as_of, SLOW).sentence)
    first = plan.apply()
    topic.store_offset(SLOW, "consumer", READER, _LAST)
    tell("read on", f"{READER} has read partition {SLOW} to its end, offset {_LAST}")
    second = topic.plan(as_of).apply()
    tell(
        "gone",
        f"removed {first.segments['dropped']} segments, then the {second.segments['dropped']} that {READER} held back, "
        f"opening no file of any of them; {topic.state(as_of).messages:,} messages are left, in the active segments",
    )


def _imported(directory: Path) -> Topic:
    shutil.rmtree(directory, ignore_errors=True)
    _write_logs(directory / "iggy")
    (directory / "retention.yaml").write_text(CONFIG)
    topic = open_warehouse(directory).topic("clicks")
    topic.import_iggy_log(directory / "iggy")
    return topic


def _write_logs(directory: Path) -> None:
    """Write the files of a topic as left by a server of 0.8: logs of an hour each, and a reader's offset."""
    start = parse_instant(FROM) // 1_000
    for partition in range(PARTITIONS):
        place = directory / "partitions" / str(partition)
        place.mkdir(parents=True)
        for hour in range(HOURS):
            offsets = range(hour * A_LOG, (hour + 1) * A_LOG)
            (place / f"{offsets[0]:020}.log").write_bytes(b"".join(_records(offsets, start)))
    offsets_of = directory / "partitions" / str(SLOW) / "offsets" / "consumers"
    offsets_of.mkdir(parents=True)
    (offsets_of / str(xxh32_intdigest(READER.encode()))).write_bytes(struct.pack("<Q", A_LOG - 1))


def _records(offsets: Sequence[int], start_us: int) -> Iterator[bytes]:
    """Message records of a log: a checksum, then the covered bytes."""
    for offset in offsets:
        payload = json.dumps({"page": _PAGES[offset % len(_PAGES)], "user": offset % 17}).encode()
        headers = _typed(2, b"source") + _typed(2, b"web") + _typed(2, b"try") + _typed(9, b"\x01")
        time_us = start_us + offset * _HOUR_US // A_LOG
        lengths = (len(headers), len(payload), 0)
        number = (offset + 1).to_bytes(16, "little")
        fields = struct.pack("<16sQQQIIQ", number, offset, time_us, time_us, *lengths)
        content = fields + payload + headers
        yield struct.pack("<Q", xxh3_64_intdigest(content)) + content


def _typed(kind: int, content: bytes) -> bytes:
    return struct.pack("<BI", kind, len(content)) + content
