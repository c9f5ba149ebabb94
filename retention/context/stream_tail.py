"""Where a stream stands at one version of its table: the next sequence, and the segment that is written to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.datafile.segment_writer import PARTITION, Staged, Staging, numbered, stage_rows
from retention.history.runs import history_of
from retention.layout.segment_roll import Active, RollRule
from retention.ports import Snapshot
from retention.stores.checks import number_bounds

FIRST_SEQ = 1
"""Where streams begin to count, unless their configuration has a `first_seq`."""


@dataclass(frozen=True)
class Position:
    """Where a stream stands: what an append rests on."""

    snapshot: Snapshot
    inventory: Inventory
    next_seq: int
    active: Active | None
    """None in a stream that never had a segment."""
    rule: RollRule

    def stage(self, staging: Staging, batches: Iterable[pa.Table]) -> Staged:
        """Write rows behind this position; they are tables of `FILE_COLUMNS` without `seq`."""
        rows = numbered(batches, self.next_seq)
        return stage_rows(staging, rows, self.active, self.rule, self.next_seq)


def locate(opened: OpenedStream, snapshot: Snapshot | None = None) -> Position:
    """Read where the stream stands, at its newest version unless a snapshot is given."""
    snapshot = snapshot or opened.store.snapshot()
    inventory = opened.store.inventory(snapshot)
    active = _active(inventory.files, snapshot.counters.open_base.get(PARTITION))
    rule = RollRule(opened.config.segment_size, opened.config.segment_span_ns)
    return Position(snapshot, inventory, next_seq(opened, inventory), active, rule)


def next_seq(opened: OpenedStream, inventory: Inventory) -> int:
    """The next sequence to assign: above every counter, every file, and everything that the run history knows of."""
    highest = pc.max(inventory.files["max_seq"]).as_py() or 0
    counted = inventory.counters.next_seq.get(PARTITION, 0)
    floor = history_of(opened.warehouse, opened.name).next_seq(PARTITION, inventory.counters.epoch)
    number_bounds.refuse_floor(opened.name, floor)
    return max(counted or first_of(opened), highest + 1, floor)


def with_floors(opened: OpenedStream, inventory: Inventory) -> Inventory:
    """An inventory whose next sequences are above everything that the run history knows of, too."""
    counters = history_of(opened.warehouse, opened.name).above(inventory.counters)
    number_bounds.refuse_floor(opened.name, max(counters.next_seq.values(), default=0))
    return replace(inventory, counters=counters)


def next_seq_without_table(opened: OpenedStream) -> int:
    """The next sequence of a stream whose table is not there: what was given out before it was lost stays so."""
    history = history_of(opened.warehouse, opened.name)
    return max(first_of(opened), history.next_seq(PARTITION, history.last_epoch()))


def first_of(opened: OpenedStream) -> int:
    """Where a stream begins to count."""
    return opened.config.first_seq or FIRST_SEQ


def _active(files: pa.Table, open_base: int | None) -> Active | None:
    largest = pc.max(files["segment"]).as_py()
    bases = [base for base in (open_base, largest) if base is not None]
    if not bases:
        return None
    inside = files.filter(pc.equal(files["segment"], max(bases))).sort_by("min_seq")
    if not inside.num_rows:
        return Active(max(bases))
    return Active(max(bases), pc.sum(inside["bytes"]).as_py(), inside["first_ts_ns"][0].as_py())
