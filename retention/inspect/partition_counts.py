"""Contents of each partition of a topic, counted from metadata (iggy `GetTopic`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.core.inventory import Inventory
from retention.core.spans import Array
from retention.rules.iggy.segments import TopicSegments


@dataclass(frozen=True)
class PartitionCounts:
    """The numbers of one partition."""

    partition: int
    messages: int
    bytes: int
    segments: int
    """Number of segments, including the active one even if it is empty."""
    first_seq: int
    """The first offset of the partition's log; `last_seq` + 1 if it is empty."""
    last_seq: int
    """Iggy's current offset; dropped messages keep theirs."""
    active: int
    """The first offset of the segment that is written to."""
    missing: int = 0
    """Offsets between the first and the last without a message: holes left by passes or servers."""
    removed_seq: int | None = None
    """The highest offset removed since offsets began to count, as the log keeps it; None: it keeps none."""


def partition_counts(
    inventory: Inventory, segments: TopicSegments, partitions: int
) -> Iterator[PartitionCounts]:
    """Count the contents of each partition.

    Args:
        inventory: the topic.
        segments: its segments, including empty active ones.
        partitions: their number; others are not counted.
    """
    next_seq, held = inventory.counters.next_seq, _sums(inventory.files)
    counts = np.zeros(partitions, dtype=np.int64)
    active = np.zeros(partitions, dtype=np.int64)
    known = segments.partition < partitions
    np.add.at(counts, segments.partition[known], 1)
    np.maximum.at(active, segments.partition[known], segments.start[known])
    for partition in range(partitions):
        after = next_seq.get(partition, 0)
        messages, size, first = held.get(partition, (0, 0, after))
        yield PartitionCounts(
            partition,
            messages,
            size,
            segments=int(counts[partition]),
            first_seq=first,
            last_seq=after - 1,
            active=int(active[partition]),
            missing=after - first - messages,
            removed_seq=inventory.counters.removed.get(partition),
        )


def no_counts(partitions: int) -> Iterator[PartitionCounts]:
    """The partitions of a topic that was never written to."""
    return (PartitionCounts(partition, 0, 0, 0, 0, -1, 0) for partition in range(partitions))


def _sums(files: pa.Table) -> dict[int, tuple[int, int, int]]:
    """Partition → messages, bytes and lowest offset of its files, shape `FILE_STATS`."""
    order: Array = np.flatnonzero(np.diff(files["partition"].to_numpy(), prepend=-1))
    if not len(order):
        return {}
    column = {name: files[name].to_numpy() for name in ("messages", "bytes", "min_seq")}
    sums = (
        np.add.reduceat(column["messages"], order),
        np.add.reduceat(column["bytes"], order),
        np.minimum.reduceat(column["min_seq"], order),
    )
    partitions = files["partition"].to_numpy()[order].tolist()
    return dict(zip(partitions, zip(*(total.tolist() for total in sums), strict=True), strict=True))
