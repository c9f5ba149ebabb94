"""Statistics of topics as Iggy's server gives them: for each partition, topic and stream, and in total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from retention.context.context import OpenedStream
from retention.context.position import with_floors
from retention.context.topic import topic_of
from retention.core.json_object import JsonObject
from retention.inspect.partition_counts import PartitionCounts, no_counts, partition_counts
from retention.planners.topic import segments_of

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

Level = Literal["total", "iggy_stream", "topic", "partition"]
"""The level of a row."""


@dataclass(frozen=True)
class StatsRow:
    """The numbers of one partition, or of several together; a column that does not apply is None."""

    level: Level
    iggy_stream: str | None
    topic: str | None
    partition: int | None
    topics: int
    partitions: int
    segments: int
    messages: int
    bytes: int
    """Bytes of the logs, with headers and without indexes."""
    first_seq: int | None = None
    """The offset at which a partition's log begins."""
    last_seq: int | None = None
    """Iggy's current offset of a partition."""
    missing: int = 0
    """Offsets between a partition's first and last without a message."""


@dataclass(frozen=True)
class TopicCounts:
    """The counts of one topic."""

    name: str
    iggy_stream: str | None
    partitions: tuple[PartitionCounts, ...]


@dataclass(frozen=True)
class TopicStats:
    """Rows of all levels: the total, then each of Iggy's streams, each of its topics, each of their partitions."""

    rows: tuple[StatsRow, ...]

    def as_json(self) -> list[JsonObject]:
        """The rows as JSON values."""
        return [asdict(row) for row in self.rows]

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a data frame; absent numbers are missing values of an integer column."""
        import pandas as pd

        names = list(StatsRow.__dataclass_fields__)
        frame = pd.DataFrame(self.as_json(), columns=names)
        return frame.astype(dict.fromkeys(names[3:], "Int64"))


def count_topic(opened: OpenedStream) -> TopicCounts:
    """Count the contents of one topic, from metadata.

    Raises:
        UsageError: it is not a topic.
        RefusedError, DamagedError: as planning a pass.
    """
    topic = topic_of(opened)
    if not opened.table.exists():
        return TopicCounts(opened.name, topic.stream, tuple(no_counts(topic.partitions)))
    inventory = with_floors(opened, opened.store.inventory(opened.store.snapshot()))
    segments = segments_of(inventory.files, inventory.counters.open_base, topic.partitions)
    counts = partition_counts(inventory, segments, topic.partitions)
    return TopicCounts(opened.name, topic.stream, tuple(counts))


def topic_stats(counted: Iterable[TopicCounts]) -> TopicStats:
    """Sum topics by Iggy's stream, those without one last."""
    topics = sorted(
        counted, key=lambda topic: (topic.iggy_stream is None, topic.iggy_stream, topic.name)
    )
    rows = [_sum("total", topics)]
    for name, group in groupby(topics, key=lambda topic: topic.iggy_stream):
        members = list(group)
        if name is not None:
            rows.append(_sum("iggy_stream", members, iggy_stream=name))
        for topic in members:
            rows += _rows(topic)
    return TopicStats(tuple(rows))


def _rows(topic: TopicCounts) -> Iterator[StatsRow]:
    named = {"iggy_stream": topic.iggy_stream, "topic": topic.name}
    yield _sum("topic", [topic], **named)
    for counts in topic.partitions:
        yield StatsRow(
            "partition",
            topic.iggy_stream,
            topic.name,
            counts.partition,
            topics=1,
            partitions=1,
            segments=counts.segments,
            messages=counts.messages,
            bytes=counts.bytes,
            first_seq=counts.first_seq,
            last_seq=counts.last_seq,
            missing=counts.missing,
        )


def _sum(
    level: Level,
    topics: Sequence[TopicCounts],
    iggy_stream: str | None = None,
    topic: str | None = None,
) -> StatsRow:
    parts = [part for counts in topics for part in counts.partitions]
    return StatsRow(
        level,
        iggy_stream,
        topic,
        None,
        topics=len(topics),
        partitions=len(parts),
        segments=sum(part.segments for part in parts),
        messages=sum(part.messages for part in parts),
        bytes=sum(part.bytes for part in parts),
        missing=sum(part.missing for part in parts),
    )
