"""Sums of the segments of a topic held for stored offsets, by partition and reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from retention.core.spans import Array
from retention.plan.build import segment_numbers
from retention.plan.protected import ProtectedForReader, ProtectedInPartition, ProtectedSegments
from retention.rules import RULES
from retention.rules.row_verdicts import STAYS
from retention.stores.offset_table import Offsets, Reader, StoredOffset


def protected_segments(files: pa.Table, rules: Array, offsets: Offsets) -> ProtectedSegments:
    """Sum up the segments held for stored offsets.

    Args:
        files: an inventory's, shape `FILE_STATS`.
        rules: the rule that would remove each file if every reader had read it, an index into
            `RULES`; `STAYS`: not held.
        offsets: the stored offsets.
    """
    held = rules != STAYS
    if not held.any():
        return ProtectedSegments()
    segments, readers = _Segments(files.filter(pa.array(held)), rules[held]), _by_partition(offsets)
    partitions = tuple(
        segments.held_in(partition, readers.get(partition, {})) for partition in segments.partitions
    )
    return ProtectedSegments(*segments.sums(slice(None)), partitions=partitions)


class _Segments:
    """Held segments, one entry each, by partition, oldest first."""

    def __init__(self, files: pa.Table, rules: Array) -> None:
        numbers, count = segment_numbers(files)
        begins = np.searchsorted(numbers, np.arange(count))
        self._partition = files["partition"].to_numpy()[begins]
        self._rule = rules[begins]
        self._end = np.maximum.reduceat(files["max_seq"].to_numpy(), begins)
        self._messages = np.add.reduceat(files["messages"].to_numpy(), begins)
        self._bytes = np.add.reduceat(files["bytes"].to_numpy(), begins)

    @property
    def partitions(self) -> list[int]:
        """The partitions of the segments, ascending."""
        partitions: list[int] = np.unique(self._partition).tolist()
        return partitions

    def sums(self, part: slice) -> tuple[int, int, int]:
        """The numbers of segments, messages and bytes of a part."""
        messages, size = self._messages[part], self._bytes[part]
        return len(messages), int(messages.sum()), int(size.sum())

    def held_in(
        self, partition: int, stored: Mapping[Reader, StoredOffset]
    ) -> ProtectedInPartition:
        """Sum up the held segments of one partition, in total and for each of its readers."""
        part = slice(*np.searchsorted(self._partition, [partition, partition + 1]).tolist())
        by_rule = np.bincount(
            self._rule[part], weights=self._messages[part], minlength=len(RULES)
        ).astype(np.int64)
        readers = sorted(self._readers(part, stored), key=lambda reader: reader.offset)
        named = {RULES[at]: int(by_rule[at]) for at in np.flatnonzero(by_rule).tolist()}
        return ProtectedInPartition(
            partition, *self.sums(part), by_rule=named, readers=tuple(readers)
        )

    def _readers(
        self, part: slice, stored: Mapping[Reader, StoredOffset]
    ) -> Iterator[ProtectedForReader]:
        for reader, last in sorted(stored.items()):
            first = part.start + int(np.searchsorted(self._end[part], last.offset, side="right"))
            if first < part.stop:
                sums = self.sums(slice(first, part.stop))
                yield ProtectedForReader(
                    reader.kind, reader.name, last.offset, last.stored_ns, *sums
                )


def _by_partition(offsets: Offsets) -> dict[int, dict[Reader, StoredOffset]]:
    by_partition: dict[int, dict[Reader, StoredOffset]] = {}
    for reader, stored in offsets.of.items():
        by_partition.setdefault(reader.partition, {})[reader] = stored
    return by_partition
