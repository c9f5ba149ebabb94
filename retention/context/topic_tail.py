"""Where the partitions of a topic end at one version of its table: what an append rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.units import MICROSECOND
from retention.history.runs import history_of
from retention.layout.segment_roll import Active
from retention.layout.topic_segment_roll import Tail
from retention.ports import Snapshot
from retention.stores.checks import number_bounds

TURN = "retention/turn"
"""Under this name, beside those of writers, the log counts the batches that named no partition."""


@dataclass(frozen=True)
class TopicPosition:
    """Where a topic stands."""

    snapshot: Snapshot
    inventory: Inventory
    known: Mapping[int, int]
    """Partition → the next offset by the run history."""

    @property
    def turn(self) -> int:
        """How many batches that named no partition were given one."""
        return self.snapshot.counters.batches.get(TURN, 0)

    def tail(self, partition: int) -> Tail:
        """Where a partition ends: above every counter, every file, and everything that the run history knows of."""
        counters = self.inventory.counters
        mine = self.inventory.files.filter(pc.equal(self.inventory.files["partition"], partition))
        last = mine.sort_by([("max_seq", "descending")]).slice(0, 1).to_pylist()
        highest = last[0]["max_seq"] if last else -1
        counted = counters.next_seq.get(partition, 0)
        next_seq = max(counted, highest + 1, self.known.get(partition, 0))
        base = max(counters.open_base.get(partition, 0), last[0]["segment"] if last else 0)
        last_us = last[0]["last_ts_ns"] // MICROSECOND if last else None
        return Tail(next_seq, _active(mine, base), last_us)


def locate_topic(opened: OpenedStream) -> TopicPosition:
    """Read where a topic stands, at its newest version."""
    snapshot = opened.store.snapshot()
    known = history_of(opened.warehouse, opened.name).next_seqs(snapshot.counters.epoch)
    number_bounds.refuse_floor(opened.name, max(known.values(), default=0))
    return TopicPosition(snapshot, opened.store.inventory(snapshot), known)


def _active(files: pa.Table, base: int) -> Active:
    inside = files.filter(pc.equal(files["segment"], base)).sort_by("min_seq")
    if not inside.num_rows:
        return Active(base)
    return Active(base, pc.sum(inside["bytes"]).as_py(), inside["first_ts_ns"][0].as_py())
