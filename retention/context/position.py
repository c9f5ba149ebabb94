"""The position of a log at one version of its table, on which an append to a stream or a topic is based."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.counters import Counters
from retention.core.inventory import Inventory
from retention.core.units import MICROSECOND
from retention.datafile.segment_writer import PARTITION
from retention.history.runs import history_of
from retention.layout.partitioner import TURN
from retention.layout.segment_roll import ActiveSegment, Tail
from retention.ports import Snapshot
from retention.stores.checks import number_bounds

_OF_A_TAIL = ("segment", "min_seq", "max_seq", "bytes", "first_ts_ns", "last_ts_ns")


@dataclass(frozen=True)
class Position:
    """The position of a log, on which an append is based."""

    snapshot: Snapshot
    inventory: Inventory
    floors: Mapping[int, int]
    """Partition → the next sequence by the run history."""
    first_seq: int
    """The first sequence of its partitions."""
    _tails: dict[int, Tail] = field(default_factory=dict, repr=False, compare=False)

    @property
    def version(self) -> int:
        """The version."""
        return self.snapshot.version

    @property
    def counters(self) -> Counters:
        """The counters of the snapshot."""
        return self.snapshot.counters

    @property
    def is_empty(self) -> bool:
        """Whether the table has no file."""
        return not self.inventory.files.num_rows

    @property
    def next_seq(self) -> int:
        """The next sequence of a stream, which has one partition."""
        return self.tail(PARTITION).next_seq

    @property
    def turn(self) -> int:
        """The number of batches that named no partition and were assigned one."""
        return self.snapshot.counters.batches.get(TURN, 0)

    def tail(self, partition: int) -> Tail:
        """The end of a partition: above every counter, every file, and everything in the run history."""
        if partition not in self._tails:
            self._tails[partition] = self._read_tail(partition)
        return self._tails[partition]

    def _read_tail(self, partition: int) -> Tail:
        counters, files = self.inventory.counters, self.inventory.files
        inside = files.select(_OF_A_TAIL).filter(pc.equal(files["partition"], partition))
        highest = pc.max(inside["max_seq"]).as_py()
        last_us = None
        if highest is not None:
            at = pc.index(inside["max_seq"], highest).as_py()
            last_us = inside["last_ts_ns"][at].as_py() // MICROSECOND
        counted = counters.next_seq.get(partition, 0)
        next_seq = _next_seq(counted or self.first_seq, highest, self.floors.get(partition, 0))
        return Tail(next_seq, _active(inside, counters.open_base.get(partition)), last_us)


def locate(opened: OpenedStream, snapshot: Snapshot | None = None) -> Position:
    """Read a log's position, at its newest version unless a snapshot is given."""
    snapshot = snapshot or opened.store.snapshot()
    return position_in(opened, snapshot, opened.store.inventory(snapshot))


def position_in(opened: OpenedStream, snapshot: Snapshot, inventory: Inventory) -> Position:
    """The position of a log at a version with a given inventory."""
    floors = history_of(opened.warehouse, opened.name).next_seqs(inventory.counters.epoch)
    number_bounds.refuse_floor(opened.name, max(floors.values(), default=0))
    return Position(snapshot, inventory, floors, opened.dialect.first_seq)


def next_seq(opened: OpenedStream, inventory: Inventory) -> int:
    """The next sequence to assign in a stream, as in `Position.tail`."""
    highest = pc.max(inventory.files["max_seq"]).as_py()
    counted = inventory.counters.next_seq.get(PARTITION, 0)
    floor = history_of(opened.warehouse, opened.name).next_seq(PARTITION, inventory.counters.epoch)
    number_bounds.refuse_floor(opened.name, floor)
    return _next_seq(counted or opened.dialect.first_seq, highest, floor)


def with_floors(opened: OpenedStream, inventory: Inventory) -> Inventory:
    """An inventory with next sequences that are also above everything in the run history."""
    counters = history_of(opened.warehouse, opened.name).above(inventory.counters)
    number_bounds.refuse_floor(opened.name, max(counters.next_seq.values(), default=0))
    return replace(inventory, counters=counters)


def next_seq_without_table(opened: OpenedStream) -> int:
    """The next sequence of a stream without a table: sequences assigned before it was lost are not reused."""
    history = history_of(opened.warehouse, opened.name)
    return max(opened.dialect.first_seq, history.next_seq(PARTITION, history.last_epoch()))


def _next_seq(counted: int, highest: int | None, floor: int) -> int:
    return max(counted, 0 if highest is None else highest + 1, floor)


def _active(files: pa.Table, open_base: int | None) -> ActiveSegment | None:
    """The active segment of a partition, from its files; None: it never had one."""
    bases = [base for base in (open_base, pc.max(files["segment"]).as_py()) if base is not None]
    if not bases:
        return None
    inside = files.filter(pc.equal(files["segment"], max(bases)))
    if not inside.num_rows:
        return ActiveSegment(max(bases))
    first = pc.index(inside["min_seq"], pc.min(inside["min_seq"])).as_py()
    return ActiveSegment(
        max(bases), pc.sum(inside["bytes"]).as_py(), inside["first_ts_ns"][first].as_py()
    )
