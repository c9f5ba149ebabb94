"""Legal holds of a table in place: rows that a person keeps from every limit, by values and by time; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.core.units import INT64_MAX
from retention.rules.tables.ticks import Cutoff, TimeColumn


@dataclass(frozen=True)
class HeldRows:
    """The rows that one legal hold covers: those that match all of its fields. Null matches none."""

    id: str
    values: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """Name of a column in narrow rows → the value that covered rows have in it."""
    time: TimeColumn | None = None
    """The type of the column `time` of narrow rows; None: rows of any time are covered."""
    from_ns: int | None = None
    to_ns: int | None = None
    """The instants from which and before which the times of covered rows are; a day counts if some of it is."""

    @cached_property
    def _begins_after(self) -> Cutoff | None:
        """The ticks before the first covered one."""
        if self.time is None or self.from_ns is None:
            return None
        is_day = self.time.kind == "date"
        return self.time.cutoff(self.from_ns if is_day else self.from_ns - 1)

    @cached_property
    def _last(self) -> int:
        """The last covered tick."""
        if self.time is None or self.to_ns is None:
            return INT64_MAX
        return self.time.shown(self.to_ns - 1)

    def covers(self, rows: pa.Table) -> Array:
        """A mask of the covered rows.

        Args:
            rows: the columns of `values`, and `time` in ticks.
        """
        mask = np.ones(rows.num_rows, dtype=bool)
        for name, value in self.values.items():
            equal = pc.fill_null(pc.equal(rows[name], value), fill_value=False)
            mask &= equal.to_numpy(zero_copy_only=False).astype(bool)
        if self.time is None:
            return mask
        ticks = pc.fill_null(rows["time"], 0).to_numpy()
        mask &= rows["time"].is_valid().to_numpy() & (ticks <= self._last)
        before = self._begins_after
        return mask if before is None else mask & ~before.takes(ticks)

    def by_time(self, low: Array, high: Array, nulls: Array, rows: Array) -> tuple[Array, Array]:
        """Masks of the files that may have rows of a covered time, and of those with only such rows.

        Args:
            low: the least tick of each file, or less.
            high: the greatest tick of each file, or more.
            nulls: the rows of each file without a time; -1: unknown.
            rows: the rows of each file.
        """
        some, whole = (low <= self._last) & (nulls != rows), (high <= self._last) & (nulls == 0)
        if self._begins_after is not None:
            some &= ~self._begins_after.takes_all(low, high)
            whole &= self._begins_after.takes_none(low, high)
        return some, whole
