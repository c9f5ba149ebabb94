"""Messages of a topic on their way into files: numbered, stamped, counted, and written segment by segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.topic_tail import TURN, TopicPosition
from retention.core.spans import Array
from retention.core.units import MICROSECOND
from retention.datafile import parquet
from retention.datafile.segment_writer import Staging, described
from retention.formats.iggy.lines import with_ids
from retention.formats.iggy.messages import decimals
from retention.ingest.append import Appended, Draft
from retention.ingest.topics.import_rows import completed
from retention.layout.partition_tails import TopicEnds
from retention.layout.topic_segment_roll import Batch
from retention.ports import Snapshot

_PARTITION_SHIFT = np.uint64(54)
"""A time in microseconds takes fewer bits, and a topic has at most 1000 partitions."""


def rows_of(
    sent: pa.Table, place: tuple[str, int], batches: Sequence[Batch], sizes: Array
) -> pa.Table:
    """Messages as they are stored, shape `FILE_COLUMNS`.

    An id of 0 becomes one that no other message of the topic has, made of partition, time and offset, so that
    whoever writes the same batch again gives it the same.

    Args:
        sent: `id_low`, `id_high`, `headers`, `payload`, `origin_ts_ns`.
        place: the topic's name, and the partition.
        batches: those that the messages are divided among, the first one beginning with the first message.
        sizes: int64, the bytes that each message is counted with.
    """
    topic, partition = place
    counts = [batch.end - batch.start for batch in batches]
    ts_us = np.repeat([batch.ts_us for batch in batches], counts)
    seqs = np.arange(batches[0].first_seq, batches[0].first_seq + sent.num_rows)
    high = (np.uint64(partition) << _PARTITION_SHIFT) | ts_us.astype(np.uint64)
    generated = np.stack([seqs.astype(np.uint64), high], axis=1)
    given = np.stack([sent[name].to_numpy() for name in ("id_low", "id_high")], axis=1)
    columns = {
        "seq": pa.array(seqs),
        "ts_ns": pa.array(ts_us * MICROSECOND),
        "headers": sent["headers"],
        "payload": sent["payload"],
        "size": pa.array(sizes),
        "msg_id": decimals(with_ids(given, generated)),
        "origin_ts_ns": pa.array(sent["origin_ts_ns"].to_numpy() // MICROSECOND * MICROSECOND),
    }
    return completed(pa.table(columns), topic)


def by_segment(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """Neighbouring batches that go into one segment."""
    for _, inside in groupby(batches, key=lambda batch: batch.base):
        yield list(inside)


def stage_send(
    staging: Staging, sent: pa.Table, place: tuple[str, int], batches: Sequence[Batch], sizes: Array
) -> list[dict[str, Any]]:
    """Write messages of one partition, a file for each segment, and read the files back; rows of `FILE_STATS`.

    Args:
        staging: where files come from.
        sent: the messages, as `rows_of` takes them.
        place: the topic's name, and the partition.
        batches: those that they are divided among.
        sizes: int64, the bytes that each message is counted with.

    Raises:
        VerificationError: a file does not hold what was written to it.
    """
    stats: list[dict[str, Any]] = []
    for inside in by_segment(batches):
        start, end = inside[0].start, inside[-1].end
        rows = rows_of(sent.slice(start, end - start), place, inside, sizes[start:end])
        [file] = staging.new(inside[0].base, place[1])
        parquet.write_messages(file.location, [rows])
        stats += described([file], wrote(rows))
    return stats


def wrote(rows: pa.Table) -> dict[str, int]:
    """What a file of these rows must hold."""
    return {
        "messages": rows.num_rows,
        "bytes": pc.sum(rows["size"]).as_py(),
        "min_seq": rows["seq"][0].as_py(),
        "max_seq": rows["seq"][-1].as_py(),
    }


@dataclass(frozen=True)
class TopicAttempt:
    """One try to append to a topic, from where it stands."""

    position: TopicPosition
    stage: Callable[[TopicPosition, Staging], Draft]
    """Writes the messages behind the position."""

    @property
    def snapshot(self) -> Snapshot:
        return self.position.snapshot

    def nothing(self) -> Appended:
        return told_of(self.position)

    def draft(self, staging: Staging) -> Draft:
        return self.stage(self.position, staging)


def draft_of(position: TopicPosition, ends: TopicEnds, stats: Sequence[dict[str, Any]]) -> Draft:
    """What is to be committed of staged messages.

    Args:
        position: where the topic stood.
        ends: where its partitions end now.
        stats: rows of `FILE_STATS` of the staged files.
    """
    return Draft(
        stats=stats,
        next_seq=ends.next_seq,
        open_base=ends.open_base,
        told=told_of(position, stats),
        is_new=bool(stats),
        batches={TURN: ends.turn} if ends.turn != position.turn else {},
    )


def told_of(position: TopicPosition, stats: Sequence[Mapping[str, Any]] = ()) -> Appended:
    """What is said of staged messages; the version is that before them."""
    reach: dict[int, tuple[int, int]] = {}
    for row in stats:
        low, high = reach.get(row["partition"], (row["min_seq"], row["max_seq"]))
        reach[row["partition"]] = min(low, row["min_seq"]), max(high, row["max_seq"])
    first_seq = min((low for low, _ in reach.values()), default=0)
    return Appended(
        first_seq=first_seq,
        last_seq=max((high for _, high in reach.values()), default=first_seq - 1),
        messages=sum(row["messages"] for row in stats),
        bytes=sum(row["bytes"] for row in stats),
        version=position.snapshot.version,
        partitions=dict(sorted(reach.items())),
    )
