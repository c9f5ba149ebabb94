"""The cause of a plan: the inputs that explain its decision on a single message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from retention.core.prefix import TailTotals
from retention.plan.consumer_snapshot import ConsumerSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from retention.plan.cause_files import CauseFiles, Remaining
    from retention.plan.removed_ranges import RemovedRanges
    from retention.rules.jetstream.protection import Protection
    from retention.stores.offset_table import Offsets

_NO_TAIL = TailTotals()
_NO_CONSUMERS = ConsumerSnapshot()


def _no_files() -> CauseFiles:
    from retention.plan.cause_files import CauseFiles

    return CauseFiles()


@dataclass(frozen=True)
class Cause:
    """The data that a plan was made from."""

    read_files: Callable[[], CauseFiles] = _no_files
    """The source of its files; those of a saved plan are decoded on demand."""
    next_seq: Mapping[int, int] = field(default_factory=dict)
    """Partition → the next sequence to assign, by the log."""
    open_base: Mapping[int, int] = field(default_factory=dict)
    """Partition → the base of the segment that appends go to."""
    tail: TailTotals = _NO_TAIL
    """Totals of the rest of the stream, if the plan was made from its oldest segments only."""
    next_due_ns: int | None = None
    """The remembered instant before which nothing is due, if no file was read."""
    scan_end: int | None = None
    """The message at which the age scan ends, or with `whole_segments` a message at or below it in
    the same file; None: the scan does not end, or does not run."""
    refused: frozenset[int] = frozenset()
    """Sequences of messages kept because no delete marker could be stored for them."""
    consumers: ConsumerSnapshot = _NO_CONSUMERS
    """The consumers that were read; empty if the policy does not use them."""
    protection: Protection | None = None
    """Protection from limits for consumers; None: the policy protects nothing."""
    offsets: Offsets | None = None
    """The stored offsets of a topic; None: the plan did not read them."""

    @cached_property
    def made_from(self) -> CauseFiles:
        """The files that the plan was made from."""
        return self.read_files()

    @property
    def files(self) -> pa.Table:
        """Every file of the inventory, in its order; the columns of `CAUSE_FILES`, and others."""
        return self.made_from.files

    @property
    def remaining(self) -> Remaining | None:
        """Unreleased messages and bytes of each file; None: nothing was released."""
        return self.made_from.remaining

    @property
    def parts(self) -> RemovedRanges:
        """Ranges that rules remove from files, read from rows."""
        return self.made_from.parts

    def end(self, partition: int) -> int:
        """The sequence above all known messages of a partition."""
        highest = self.made_from.highest(partition)
        counted = self.next_seq.get(partition, 0)
        return counted if highest is None else max(counted, highest + 1)
