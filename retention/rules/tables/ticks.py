"""Ticks: values of a time column as integers in its own unit, and the ticks that are due at an instant.

The comparisons are those of "Ages" in docs/semantics/tables.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from retention.core.spans import Array
from retention.core.table_policy import TablePolicy, Unit
from retention.core.units import DAY, INT64_MAX, MICROSECOND, MILLISECOND, SECOND
from retention.rules.tables.matching import limits_of

Kind = Literal["date", "timestamp", "timestamp_ntz"] | Unit
"""The type of a time column; of integers, their unit."""
TICK_NS: dict[Kind, int] = {
    "date": DAY,
    "timestamp": MICROSECOND,
    "timestamp_ntz": MICROSECOND,
    "s": SECOND,
    "ms": MILLISECOND,
    "us": MICROSECOND,
    "ns": 1,
}
"""Kind → nanoseconds per tick."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = DAY // MICROSECOND
_SECOND_US = SECOND // MICROSECOND
_MOST_OFFSET = 2
"""Days; no zone was ever that far from UTC."""
_US_PER = {"s": SECOND // MICROSECOND, "ms": MILLISECOND // MICROSECOND, "us": 1}


@dataclass(frozen=True)
class Cutoff:
    """The ticks that are due: up to `last`, without those of `later`."""

    last: int
    later: tuple[int, int] | None = None
    """The first and the last of the local times that a clock skipped, and that are not due yet."""

    def takes(self, ticks: Array) -> Array:
        """A mask of the ticks that are due; shape (n,)."""
        due: Array = ticks <= self.last
        if self.later is not None:
            due &= (ticks < self.later[0]) | (ticks > self.later[1])
        return due

    def takes_all(self, low: Array, high: Array) -> Array:
        """A mask of ranges with no tick that is not due."""
        whole: Array = high <= self.last
        if self.later is not None:
            whole &= (high < self.later[0]) | (low > self.later[1])
        return whole

    def takes_none(self, low: Array, high: Array) -> Array:
        """A mask of ranges with no tick that is due."""
        none: Array = low > self.last
        if self.later is not None:
            none |= (low >= self.later[0]) & (high <= self.later[1])
        return none


@dataclass(frozen=True)
class TimeColumn:
    """The type of a time column, and the zone of its days and local times."""

    kind: Kind
    zone: str | None = None
    """An IANA name; None: UTC."""

    def cutoff(self, instant_ns: int) -> Cutoff:
        """The ticks of instants up to a given one; a day has its end as instant."""
        if self.kind == "date":
            return Cutoff(self._ended_day(instant_ns))
        if self.kind == "timestamp_ntz":
            return self._local_cutoff(instant_ns // MICROSECOND)
        return Cutoff(instant_ns // TICK_NS[self.kind])

    def due_from(self, tick: int) -> int:
        """The first instant at which a tick is due, nanoseconds since the epoch; beyond 64 bits as if in UTC.

        It is looked for among the instants of `cutoff`, so that both agree in every zone.
        """
        ended = tick + 1 if self.kind == "date" else tick
        instant_ns = ended * TICK_NS[self.kind]
        if self.zone is None or self.kind not in ("date", "timestamp_ntz"):
            return instant_ns
        if abs(instant_ns) > INT64_MAX - _MOST_OFFSET * DAY:
            return instant_ns
        low, high = (
            (instant_ns + days * DAY) // MICROSECOND for days in (-_MOST_OFFSET, _MOST_OFFSET)
        )
        while high - low > 1:
            middle = (low + high) // 2
            is_due = self.cutoff(middle * MICROSECOND).takes(np.array([tick]))[0]
            low, high = (low, middle) if is_due else (middle, high)
        return high * MICROSECOND

    def begun(self, instant_ns: int) -> Cutoff:
        """The ticks that are not ahead of an instant; a day is ahead until it begins."""
        if self.kind == "date":
            return Cutoff(self._local(instant_ns // MICROSECOND) // _DAY_US)
        return self.cutoff(instant_ns)

    def shown(self, instant_ns: int) -> int:
        """The last tick that a clock has shown by an instant; one that was put back has shown later ones before."""
        if self.kind not in ("date", "timestamp_ntz"):
            return instant_ns // TICK_NS[self.kind]
        instant_us = instant_ns // MICROSECOND
        local, changed = self._local(instant_us), self._change(instant_us - _DAY_US, instant_us)
        if changed is not None:
            local = max(local, self._local(changed - 1))
        return local // _DAY_US if self.kind == "date" else local

    def _ended_day(self, instant_ns: int) -> int:
        """The last day that ended by the instant."""
        today = self._local(instant_ns // MICROSECOND) // _DAY_US
        midnight_due = self._local_cutoff(instant_ns // MICROSECOND).takes(
            np.array([today * _DAY_US])
        )
        return today - 1 if midnight_due[0] else today - 2

    def _local_cutoff(self, instant_us: int) -> Cutoff:
        """The local times that are due: of two instants, the later counts.

        A clock that is put back repeats local times, and one that is put forward skips some:

            instants     |--- before ---|--- after ---|
            put back     ... 02:59      02:00 ...         until the second 02:00, nothing from 02:00 on is due
            put forward  ... 01:59      03:00 ...         02:30 is due 30 minutes after 02:00, as 03:30 is
        """
        local, offset = self._local(instant_us), self._offset(instant_us)
        ahead = self._change(instant_us, instant_us + _DAY_US)
        repeated_from = None if ahead is None else ahead + self._offset(ahead)
        if repeated_from is not None and repeated_from <= local:
            return Cutoff(repeated_from - 1)
        changed = self._change(instant_us - _DAY_US, instant_us)
        if changed is None:
            return Cutoff(local)
        earlier = self._offset(changed - 1)
        first, end = instant_us + earlier + 1, changed + offset
        return Cutoff(local, (first, end - 1) if first < end else None)

    def _local(self, instant_us: int) -> int:
        return instant_us + self._offset(instant_us)

    def _offset(self, instant_us: int) -> int:
        """Microseconds by which local time is ahead of UTC."""
        if self.zone is None:
            return 0
        local = (_EPOCH + timedelta(microseconds=instant_us)).astimezone(ZoneInfo(self.zone))
        offset = local.utcoffset()
        return 0 if offset is None else offset // timedelta(microseconds=1)

    def _change(self, start_us: int, end_us: int) -> int | None:
        """The first instant of another offset, after `start_us` and up to `end_us`; None if both have the same."""
        before = self._offset(start_us)
        if self._offset(end_us) == before:
            return None
        low, high = start_us // _SECOND_US, -(-end_us // _SECOND_US)
        while high - low > 1:
            middle = (low + high) // 2
            same = self._offset(middle * _SECOND_US) == before
            low, high = (middle, high) if same else (low, middle)
        return high * _SECOND_US


@dataclass(frozen=True)
class TimeColumns:
    """The types of the columns `time` and `expires_at`; None: the policy has no such column."""

    time: TimeColumn | None = None
    expires_at: TimeColumn | None = None


def due_ticks(
    policy: TablePolicy, times: TimeColumns, as_of_ns: int
) -> dict[str, list[Cutoff | None]]:
    """The due ticks of `expires_at` and of `max_age`, in that order: one cutoff per policy, and that of other rows.

    None: rows of that policy do not have the limit.
    """
    limits = limits_of(policy)
    expiry, time = times.expires_at, times.time
    return {
        "expires_at": [
            expiry.cutoff(as_of_ns) if each.expires and expiry is not None else None
            for each in limits
        ],
        "max_age": [
            None
            if each.max_age_ns is None or time is None
            else time.cutoff(as_of_ns - each.max_age_ns)
            for each in limits
        ],
    }


def time_column(delta_type: object, unit: Unit | None, zone: str | None) -> TimeColumn | None:
    """The type of a time column, from Delta's name of its type; None if rules cannot use it."""
    if delta_type in ("date", "timestamp_ntz"):
        return TimeColumn("date" if delta_type == "date" else "timestamp_ntz", zone)
    if delta_type == "timestamp":
        return TimeColumn("timestamp")
    is_integer = delta_type in ("byte", "short", "integer", "long")
    return TimeColumn(unit) if is_integer and unit is not None else None


def ticks_of(values: pa.Array) -> pa.Array:
    """The ticks of a file's values: days, microseconds, or integers as they are; int64, with their nulls.

    Nanoseconds are rounded up, so that no row is due too early.
    """
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    if not pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    unit = values.type.unit
    plain = values.cast(pa.int64())
    if unit == "us":
        return plain
    numbers = plain.fill_null(0).to_numpy(zero_copy_only=False)
    ticks = -(-numbers // MICROSECOND) if unit == "ns" else numbers * _US_PER[unit]
    return pa.array(ticks, pa.int64(), mask=plain.is_null().to_numpy(zero_copy_only=False))
