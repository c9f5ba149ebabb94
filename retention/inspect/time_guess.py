"""Guesses about the columns of a table that nobody described: which one has the time of a row, and in which unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.table_policy import Column, Unit
from retention.core.units import DAY, MICROSECOND
from retention.rules.tables.ticks import TICK_NS

TIMES = {"timestamp": 3.0, "timestamp_ntz": 3.0, "date": 1.0, "long": 1.0, "integer": 1.0}
"""Delta's type of a column that may have times → its score; integers need a unit."""
_DIGITS: dict[int, Unit] = {10: "s", 13: "ms", 16: "us", 19: "ns"}
"""Digits of an integer since the epoch, from 2001 to 2286 → its unit."""
_YEARS_NS = 3653 * DAY
_EVENT = {"event_ts", "event_time", "timestamp", "created_at", "created", "ts", "time"}
_EVENT |= {"occurred_at", "ts_ms", "event_timestamp"}
_ARRIVAL = ("ingest", "inserted_at", "processed_at", "load_ts", "loaded_at")
_OTHER = ("birth", "dob", "due", "valid", "expir", "delet", "updated", "last_seen", "end", "ttl")
_EXPIRY = ("expir", "ttl", "valid_until")
_KEYS = ("id", "key", "user", "device", "customer", "tenant", "account", "session")
_FITS = 0.9
"""The share of rows with plausible times from which a column can have the time of a row."""
_LEAST, _CLOSE = 3.0, 1.5


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds of a column in each file, the oldest file first; null: unknown."""

    path: Column
    type: str
    """Delta's type."""
    min: pa.Array
    """Microseconds since the epoch, of an integer the number itself."""
    max: pa.Array
    rows: pa.Array


@dataclass(frozen=True)
class TimeCandidate:
    """A column that may have the time of a row."""

    path: Column
    type: str
    unit: Unit | None
    """The unit of an integer."""
    share: float | None
    """The share of rows in files with all times in the last ten years and none ahead by a day; None: unknown."""
    rising: float | None
    """The share of files that begin no earlier than the file before them; None: unknown."""
    first_ns: int | None
    last_ns: int | None
    score: float

    @property
    def fits(self) -> bool:
        """Whether the column can have the time of a row."""
        return self.share is not None and self.share >= _FITS and self.score >= _LEAST


def time_candidates(columns: Iterable[ColumnBounds], now_ns: int) -> list[TimeCandidate]:
    """Rate the columns that may have the time of a row, the likeliest first; integers without one unit are none."""
    rated = [rate for column in columns if (rate := _candidate(column, now_ns)) is not None]
    return sorted(rated, key=lambda candidate: (-candidate.score, candidate.path))


def likeliest(candidates: Sequence[TimeCandidate]) -> list[TimeCandidate]:
    """The candidates that a person has to choose from: one if it is clearly the likeliest, none if no column fits."""
    fitting = [candidate for candidate in candidates if candidate.fits]
    return [each for each in fitting if each.score >= fitting[0].score - _CLOSE]


def expiry_columns(paths: Iterable[tuple[Column, str]]) -> list[Column]:
    """The columns (path, Delta's type) that may have the instant at which a row expires, by their names."""
    return [path for path, kind in paths if kind in TIMES and _has(path, _EXPIRY)]


def key_columns(paths: Iterable[tuple[Column, str]]) -> list[Column]:
    """The columns (path, Delta's type) that may identify the subject of a row, by their names."""
    return [
        path
        for path, kind in paths
        if kind in ("string", "long", "integer")
        and any(word in path[-1].lower().split("_") for word in _KEYS)
    ]


def unit_of(low: int, high: int) -> Unit | None:
    """The unit of integers since the epoch, from their digits; None: they are none, or their bounds disagree.

    >>> unit_of(1_700_000_000, 1_800_000_000), unit_of(1_700_000_000, 1_700_000_000_000), unit_of(1, 9)
    ('s', None, None)
    """
    units = {_DIGITS.get(len(str(value))) for value in (low, high)}
    return units.pop() if len(units) == 1 else None


def _candidate(column: ColumnBounds, now_ns: int) -> TimeCandidate | None:
    if column.type not in TIMES:
        return None
    low, high = pc.min(column.min).as_py(), pc.max(column.max).as_py()
    unit: Unit | None = None
    tick = MICROSECOND
    if column.type in ("long", "integer"):
        unit = None if low is None or high is None else unit_of(low, high)
        if unit is None:
            return None
        tick = TICK_NS[unit]
    share, rising = _share(column, now_ns // tick, tick), _rising(column.min)
    plausible = 0.0 if share is None else 3 * share - 2
    trend = 0.0 if rising is None else 3 * rising - 1
    score = TIMES[column.type] + plausible + trend + _by_name(column.path)
    first, last = (None if bound is None else bound * tick for bound in (low, high))
    return TimeCandidate(
        column.path, column.type, unit, share, rising, first, last, round(score, 1)
    )


def _share(column: ColumnBounds, now: int, tick: int) -> float | None:
    """The share of rows in files whose bounds, in ticks, lie in the last ten years and at most a day ahead."""
    recent = pc.greater(column.min, now - _YEARS_NS // tick)
    is_plausible = pc.and_(recent, pc.less_equal(column.max, now + DAY // tick))
    known = pc.is_valid(is_plausible)
    rows = pc.fill_null(column.rows, 1)
    total = pc.sum(rows.filter(known)).as_py()
    plausible = pc.sum(rows.filter(pc.fill_null(is_plausible, fill_value=False))).as_py() or 0
    return plausible / total if total else None


def _rising(low: pa.Array) -> float | None:
    low = low.drop_null()
    if len(low) < 2:  # noqa: PLR2004  (two files make a trend)
        return None
    return pc.mean(pc.less_equal(low[:-1], low[1:]).cast(pa.float64())).as_py()


def _by_name(path: Column) -> float:
    if _has(path, _OTHER):
        return -4.0
    if path[-1].lower() in _EVENT:
        return 2.0
    return 1.0 if _has(path, _ARRIVAL) else 0.0


def _has(path: Column, parts: Iterable[str]) -> bool:
    return any(part in path[-1].lower() for part in parts)
