"""Schedules of messages (`Nats-Schedule`, ADR-51): the patterns that a server (2.15.1) accepts."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime
from itertools import chain

from retention.core.headers import go_duration_ns

_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\dT)(\d\d?)(:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-](\d\d):(\d\d))", re.ASCII
)
_NAMED = frozenset(
    ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
)
_MONTHS = {
    "jan": 1,
    "feb": 2,
    "mar": 3,
    "apr": 4,
    "may": 5,
    "jun": 6,
    "jul": 7,
    "aug": 8,
    "sep": 9,
    "oct": 10,
    "nov": 11,
    "dec": 12,
}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _WEEKDAYS),
)
"""The lowest and highest number of each field and its names of numbers, from seconds to days of the week."""
_NUMBER = re.compile(r"\+?[0-9]{1,18}")
_STARS = ("*", "?")
_LEAP_YEAR = 2028
_SECOND_NS = 1_000_000_000
_MAX_ZONE_HOURS, _MAX_ZONE_MINUTES = 24, 60


def is_pattern(pattern: str, *, in_zone: bool) -> bool:
    """Whether a server accepts a pattern: `@at` an instant, `@every` a duration, `@hourly` and similar, or six fields.

    Args:
        pattern: the value of the header.
        in_zone: whether a time zone is given; instants and durations do not allow one.
    """
    if pattern.startswith("@at "):
        return not in_zone and _is_instant(pattern[4:])
    if pattern.startswith("@every "):
        duration = go_duration_ns(pattern[7:].encode("utf-8", "surrogateescape"))
        return not in_zone and duration is not None and duration >= _SECOND_NS
    return pattern in _NAMED or _is_cron(pattern.split())


def _is_instant(text: str) -> bool:
    """Whether a text is RFC 3339 as Go parses it: an hour of one digit is valid."""
    parts = _INSTANT.fullmatch(text)
    if parts is None:
        return False
    day, hour, rest, zone_hours, zone_minutes = parts.groups("0")
    try:
        datetime.fromisoformat(f"{day}{hour:0>2}{rest}")
    except ValueError:
        return False
    return int(zone_hours) <= _MAX_ZONE_HOURS and int(zone_minutes) <= _MAX_ZONE_MINUTES


def _is_cron(fields: list[str]) -> bool:
    """Whether six fields are numbers, ranges and steps within their bounds, and at least one date matches."""
    if len(fields) != len(_FIELDS):
        return False
    try:
        numbers = [_numbers(field, *bounds) for field, bounds in zip(fields, _FIELDS, strict=True)]
    except ValueError:
        return False
    days, months, weekdays = numbers[3:]
    lasts = any(day <= monthrange(_LEAP_YEAR, month)[1] for day in days for month in months)
    both = any(_is_open(field) for field in (fields[3], fields[5]))
    some_day = (lasts and bool(weekdays)) if both else (lasts or bool(weekdays))
    return all((*numbers[:3], months)) and some_day


def _numbers(field: str, lowest: int, highest: int, names: dict[str, int]) -> set[int]:
    """The numbers that a field names.

    Raises:
        ValueError: a part of it cannot be read, or is out of bounds.
    """
    parts = (_range(part, lowest, highest, names) for part in field.split(",") if part)
    return set(chain.from_iterable(parts))


def _range(part: str, lowest: int, highest: int, names: dict[str, int]) -> range:
    span, _, step = part.partition("/")
    first, _, last = span.partition("-")
    if first in _STARS:
        start, end = lowest, highest
    else:
        start = _number(first, names)
        end = _number(last, names) if "-" in span else start
    if "/" in part and "-" not in span:
        end = highest
    by = _number(step, {}) if "/" in part else 1
    if not (lowest <= start <= end <= highest and by):
        raise ValueError(part)
    return range(start, end + 1, by)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _is_open(field: str) -> bool:
    """Whether a field of days leaves the choice of days to the other field."""
    spans = (part.partition("/") for part in field.split(","))
    return any(
        span.partition("-")[0] in _STARS and (not slash or step.lstrip("+0") == "1")
        for span, slash, step in spans
    )
