"""Messages for a topic before they are written: which partition, batch and offset each of them gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa

from retention.core.spans import Array
from retention.dialects.iggy import Iggy
from retention.dialects.iggy_checks import sizes_of
from retention.layout.partition_tails import PartitionTails
from retention.layout.partitioner import partition_addresses
from retention.layout.topic_segment_roll import Batch, accounted_sizes


@dataclass(frozen=True)
class Assigned:
    """Messages of one address, in the order of the lines, and where they go."""

    rows: Array
    """The places of these messages among those that were sent."""
    partition: int
    batches: Sequence[Batch]
    """The batches that the messages are divided among, counted from the first of them."""
    sizes: Array
    """int64, the bytes that each is counted with."""

    def pieces(self, sent: pa.Table, dialect: Iggy) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        """Partition and segment, and what is stored there, shape `FILE_COLUMNS`.

        Args:
            sent: all messages, shape `formats.iggy.lines.SENT`.
            dialect: the topic's.
        """
        messages = sent.take(pa.array(self.rows))
        for base, inside in groupby(self.batches, key=attrgetter("base")):
            batches = list(inside)
            start, end = batches[0].start, batches[-1].end
            rows, sizes = messages.slice(start, end - start), self.sizes[start:end]
            yield (self.partition, base), dialect.stored(rows, self.partition, batches, sizes)


def assign(sent: pa.Table, dialect: Iggy, ends: PartitionTails) -> list[Assigned]:
    """Give messages their places, those of one address together.

    Args:
        sent: shape `formats.iggy.lines.SENT`, all of which a server would take.
        dialect: the topic's.
        ends: where its partitions end; they are moved on.
    """
    address = partition_addresses(sent["partition"], sent["key"], dialect.policy.partitions)
    sizes = sizes_of(sent, dialect.policy)
    assigned = []
    for number in np.unique(address).tolist():
        rows = np.flatnonzero(address == number)
        partition, batches = ends.append(number, sizes[rows])
        counted = accounted_sizes(sizes[rows], batches, dialect.policy)
        assigned.append(Assigned(rows, partition, batches, counted))
    return assigned
