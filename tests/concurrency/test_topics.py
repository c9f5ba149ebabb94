"""Concurrent publishers to a topic and passes: no duplicates, and only expired messages are removed."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from retention.ingest.topics.publish import TopicAck
from tests.support.topics import SECOND, START, World, line

PUBLISHERS, BATCHES = 3, 5
BUSY = 75
AGE = 40 * SECOND


class Ticking:
    """A clock that advances by a second at each reading."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now_ns = START

    def __call__(self) -> int:
        with self._lock:
            self.now_ns += SECOND
            return self.now_ns


def published(world: World, writer: int) -> list[tuple[TopicAck, str]]:
    """All messages acknowledged to a publisher, with each batch sent twice."""
    told = []
    for batch in range(1, BATCHES + 1):
        names = [f"{writer}-{batch}-{number}" for number in range(3)]
        lines = [line(names[0], partition=0), line(names[1]), line(names[2], key=names[2])]
        told += list(
            zip(world.topic.publish(lines, f"w{writer}", batch).acks(), names, strict=True)
        )
        assert world.topic.publish(lines, f"w{writer}", batch).appended.duplicate
    return told


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_nothing_comes_twice_and_only_whole_old_segments_go(tmp_path: Path, format_: str) -> None:
    said = {"roll_after": "20s", "message_expiry": "40s"}
    world = World(tmp_path, format_, said, Ticking())  # type: ignore[arg-type]
    removed = 0
    with ThreadPoolExecutor(PUBLISHERS) as pool:
        publishers = [pool.submit(published, world, writer) for writer in range(PUBLISHERS)]
        while wait(publishers, timeout=0.1).not_done:
            [outcome] = world.warehouse.apply()
            assert outcome.exit_code in (0, BUSY), outcome.error
            removed += outcome.value.removed_messages if outcome.value else 0
    answered = [pair for publisher in publishers for pair in publisher.result()]
    places = Counter((ack.partition, ack.seq) for ack, _ in answered)
    assert len(places) == len(answered) == PUBLISHERS * BATCHES * 3
    ends = Counter(partition for partition, _ in places)
    assert set(places) == {(one, seq) for one, count in ends.items() for seq in range(count)}
    names = {(ack.partition, ack.seq): name for ack, name in answered}
    rows = world.rows()
    assert len(rows) == len(answered) - removed
    assert all(names[row["partition"], row["seq"]] == row["payload"].decode() for row in rows)
    for partition, count in ends.items():
        left = [row["seq"] for row in rows if row["partition"] == partition]
        assert left == list(range(count - len(left), count))
    world.clock.now_ns += AGE
    [outcome] = world.warehouse.apply()
    assert outcome.value is not None, outcome.error
    assert (outcome.value.removed_messages, world.rows()) == (len(rows), [])
    assert removed
