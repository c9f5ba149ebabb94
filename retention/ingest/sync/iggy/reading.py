"""Reading a batch from the partitions of a server's topic: bounded polls, each compared with what was read before."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.errors import RefusedError
from retention.formats.iggy.polled import Polled
from retention.iggy.topic import RemoteTopic
from retention.iggy.wire import PartitionInfo
from retention.ingest.sync.iggy.position import PartitionPosition, mark_of, replaced_error

POLL_BYTES = 8 << 20
"""The bytes that a poll should bring."""
MOST_POLLED = 2_000
"""The most messages of a poll. The protocol bounds a poll by messages alone."""
_GROWTH = 2


@dataclass(frozen=True)
class PartitionMissed:
    """Offsets of a partition that the server removed before they were copied."""

    partition: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.first:,} to {self.last:,} ({self.count:,})"


@dataclass(frozen=True)
class PartitionRead:
    """New messages of one partition."""

    partition: int
    rows: pa.Table
    """Shape `formats.iggy.rows.ROWS`, ascending by offset, not empty."""
    position: PartitionPosition
    """The position after them."""
    is_end: bool
    """Whether the last of them was the partition's last one, so that its batch is complete."""
    missed: tuple[PartitionMissed, ...] = ()


@dataclass
class Room:
    """The messages and bytes that a batch may still take; one message always fits into an empty batch."""

    messages: int
    bytes: int
    taken: bool = False

    @property
    def is_left(self) -> bool:
        """Whether another poll fits."""
        return not self.taken or (self.messages > 0 and self.bytes > 0)

    def take(self, rows: pa.RecordBatch) -> None:
        """Count messages."""
        self.messages -= rows.num_rows
        self.bytes -= rows.nbytes
        self.taken = True


@dataclass
class PollSize:
    """The number of messages to ask for, by the bytes of those before."""

    count: int = 1

    @classmethod
    def of(cls, partition: PartitionInfo) -> PollSize:
        """The first number for a partition, by its average."""
        average = partition.bytes // max(partition.messages, 1) or 1
        return cls(max(1, min(MOST_POLLED, POLL_BYTES // average)))

    def learn(self, rows: pa.RecordBatch) -> None:
        """Adapt to the messages of a poll."""
        average = rows.nbytes // rows.num_rows or 1
        self.count = max(1, min(MOST_POLLED, POLL_BYTES // average, self.count * _GROWTH))


@dataclass
class PartitionReader:
    """A reader of one partition for one batch after another."""

    opened: OpenedStream
    remote: RemoteTopic
    info: PartitionInfo
    size: PollSize = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the average of the partition."""
        self.size = PollSize.of(self.info)

    def read(self, before: PartitionPosition, end: int, room: Room) -> PartitionRead | None:
        """The messages from a position to `end` (exclusive), as many as fit; None: none fits.

        Raises:
            RefusedError: the last message that was read is another one there now, or the partition was purged
                meanwhile.
            DamagedError, RefusedError, StorageError: as `RemoteTopic.poll`.
        """
        tables: list[pa.RecordBatch] = []
        missed: list[PartitionMissed] = []
        position, is_end = before, False
        while position.next_offset < end and room.is_left:
            polled = self._poll(position, end, room, again=not tables)
            first = int(polled.rows["seq"][0].as_py())
            if first > position.next_offset and position.created_us is not None:
                missed.append(PartitionMissed(self.info.number, position.next_offset, first - 1))
            room.take(polled.rows)
            tables.append(polled.rows)
            last = int(polled.rows["seq"][-1].as_py())
            mark = mark_of(int(polled.checksums[-1]))
            position = PartitionPosition(last + 1, self.info.created_us, mark)
            is_end = last == polled.last_offset
        if not tables:
            return None
        rows = pa.Table.from_batches(tables)
        return PartitionRead(self.info.number, rows, position, is_end, tuple(missed))

    def _poll(self, position: PartitionPosition, end: int, room: Room, *, again: bool) -> Polled:
        """The next messages; `again`: the last one that was read is read once more, and compared."""
        number, first = self.info.number, position.next_offset
        compares = again and position.mark is not None
        count = min(self.size.count, end - first, max(room.messages, 1))
        polled = self.remote.poll(number, first - compares, count + compares)
        if compares:
            polled = self._compared(polled, position)
            if not polled.rows.num_rows:
                polled = self.remote.poll(number, first, count)
        if not polled.rows.num_rows:
            raise RefusedError(
                f"{self.opened.name}: partition {number} on the server has no message from offset {first:,} on, and "
                f"had some up to {end - 1:,}: the topic was purged meanwhile; this batch was not committed; run it "
                "again, which compares the messages first"
            )
        self.size.learn(polled.rows)
        return polled

    def _compared(self, polled: Polled, position: PartitionPosition) -> Polled:
        """The messages after the last one that was read, if the server still has that one."""
        last = position.next_offset - 1
        seqs = polled.rows["seq"].to_numpy()
        if not len(seqs) or seqs[0] != last:
            return polled
        if mark_of(int(polled.checksums[0])) != position.mark:
            raise replaced_error(self.opened, self.info.number, last)
        return Polled(polled.rows.slice(1), polled.last_offset, polled.checksums[1:])


def batch_starts(ts_ns: np.ndarray) -> np.ndarray:
    """The index of the first message of each of the server's batches, which have one time each, rising."""
    return np.flatnonzero(np.concatenate([[True], np.diff(ts_ns) != 0]))
