"""Partition values in the names of directories, as Hive writes them, and the times that several of them spell."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from urllib.parse import unquote

PartitionValues = Mapping[str, str | None]
_NULL = ("", "__HIVE_DEFAULT_PARTITION__")
_INTEGER = re.compile(r"-?\d{1,18}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_UNITS = (
    ("year", "yyyy", "y"),
    ("month", "mm", "m"),
    ("day", "dd", "d"),
    ("hour", "hh", "h"),
    ("minute", "min"),
)
"""The names of partition columns that spell a time, from the largest unit down."""
_MONTH, _DAY, _HOUR = 2, 3, 4
"""The number of units down to each."""


def partition_values(path: str) -> dict[str, str | None]:
    """Column → value, from the directories `column=value` of a relative path; None: null.

    >>> partition_values("day=2026-01-01/at=a%3Ab c/x=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
    {'day': '2026-01-01', 'at': 'a:b c', 'x': None}
    """
    parts = (part.partition("=") for part in path.split("/")[:-1])
    return {
        unquote(name): None if value in _NULL else unquote(value)
        for name, equals, value in parts
        if name and equals
    }


def column_type(values: Iterable[str | None]) -> str:
    """Delta's type of a partition column: `date` or `long` if all its values are, else `string`.

    >>> column_type(["2026-01-01", None]), column_type(["7", "08"]), column_type(["2026-02-30"])
    ('date', 'long', 'string')
    """
    known = {value for value in values if value is not None}
    if known and all(_day(value) is not None for value in known):
        return "date"
    return "long" if known and all(map(_INTEGER.fullmatch, known)) else "string"


@dataclass(frozen=True)
class SpelledTime:
    """A time that several partition columns spell: `year/month/day/hour`, or a date and `hour`."""

    columns: tuple[str, ...]
    """From the largest unit down."""
    units: int
    """The number of units down to the last column: 2 for months, 5 for minutes."""

    @property
    def name(self) -> str:
        """The name by which a configuration uses it as a column."""
        return "/".join(self.columns)

    @property
    def type(self) -> str:
        """Delta's type of its values: the last day, or the local time at which the hour or minute ends."""
        return "date" if self.units < _HOUR else "timestamp_ntz"

    def value(self, values: PartitionValues) -> str | None:
        """The last day of the spelled month or day, or the end of the hour or minute; None: there is no such time."""
        texts = [values.get(column) for column in self.columns]
        known = [text for text in texts if text is not None]
        if len(known) < len(texts):
            return None
        first = _day(known[0])
        try:
            numbers = (
                [*_date_parts(first), *map(_number, known[1:])] if first else [*map(_number, known)]
            )
            return _end(numbers)
        except (ValueError, OverflowError):
            return None


def spelled_time(types: Mapping[str, str]) -> SpelledTime | None:
    """The time that partition columns spell by their names.

    Args:
        types: column → Delta's type, in the order of directories.

    >>> spelled_time({"topic": "string", "dt": "date", "hour": "long"})
    SpelledTime(columns=('dt', 'hour'), units=4)
    """
    names = list(types)
    for at, name in enumerate(names):
        start = _DAY if types[name] == "date" else int(_is_unit(name, 0))
        units = start
        while start and units < len(_UNITS) and at + units - start + 1 < len(names):
            if not _is_unit(names[at + units - start + 1], units):
                break
            units += 1
        if units > start:
            return SpelledTime(tuple(names[at : at + units - start + 1]), units)
    return None


def _is_unit(name: str, unit: int) -> bool:
    return name.lower() in _UNITS[unit]


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def _date_parts(day: date) -> tuple[int, int, int]:
    return day.year, day.month, day.day


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(text)
    return int(text)


def _end(numbers: Sequence[int]) -> str:
    """The last day, or the end of the hour or minute, of a year, a month and so on."""
    year, month, *rest = numbers
    if not rest:
        return date(year, month, calendar.monthrange(year, month)[1]).isoformat()
    if len(numbers) == _DAY:
        return date(year, month, rest[0]).isoformat()
    day, hour, *minutes = rest
    begin = datetime(year, month, day, hour, minutes[0] if minutes else 0, tzinfo=UTC)
    length = timedelta(minutes=1) if minutes else timedelta(hours=1)
    return (begin + length).replace(tzinfo=None).isoformat(sep=" ")
