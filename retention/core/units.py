"""Durations, sizes and instants: parsing to exact integers, and formatting for people."""

from __future__ import annotations

import re
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Literal

from retention.errors import UsageError

MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

INT64_MAX = 2**63 - 1

DURATION_PATTERN = r"[-+]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w))+)"
"""The texts that `parse_duration` accepts, for JSON Schema."""
SIZE_PATTERN = (
    r" *[-+]?([0-9]+\.?[0-9]*|\.[0-9]+) *"
    r"([kKmMgGtTpPeE]|[kKmMgGtTpPeE]?[bB]([iI][tT])?|[kKmMgGtTpPeE][iI][bB]([iI][tT])?)? *"
)
"""The texts that `parse_size` accepts, for JSON Schema."""

_DURATION_UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "μs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
    "d": DAY,
    "w": WEEK,
}
_SPELLED_UNITS = {
    "day": DAY,
    "hour": HOUR,
    "minute": MINUTE,
    "second": SECOND,
    "millisecond": MILLISECOND,
    "microsecond": MICROSECOND,
    "nanosecond": 1,
}
_BARE_NAMES = {"ns": "nanoseconds", "us": "microseconds"}
_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_DURATION_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w)", re.ASCII)
_SIZE = re.compile(r"\s*([-+]?)(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NEAR_NOW = re.compile(r"now(?:(?P<sign>[-+])(?P<distance>[\d.].*))?")
_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[Tt ](?P<clock>(?:[01]\d|2[0-3]):\d\d:\d\d)"
    r"(?:\.(?P<decimals>\d{1,9}))?(?P<offset>[Zz]|[-+]\d\d:\d\d)",
    re.ASCII,
)
_KIB = 1024
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CALENDAR_CYCLE_S = 146_097 * 86_400


def _size_units() -> dict[str, Fraction]:
    units = {"": Fraction(1), "b": Fraction(1), "bit": Fraction(1, 8)}
    for power, prefix in enumerate("kmgtpe", start=1):
        units[prefix] = units[f"{prefix}b"] = Fraction(1000**power)
        units[f"{prefix}ib"] = Fraction(1024**power)
        units[f"{prefix}bit"] = Fraction(1000**power, 8)
        units[f"{prefix}ibit"] = Fraction(1024**power, 8)
    return units


_SIZE_UNITS = _size_units()


def parse_duration(value: str | int, bare: Literal["ns", "us"] = "ns") -> int:
    """Read a Go duration, with `d` (24h) and `w` (7d) as further units; truncated to 1 ns.

    Args:
        value: text such as `30d`, `1h30m` or `1.5s`, or a bare integer.
        bare: the unit of a bare integer.

    Returns:
        Nanoseconds, exact.

    Raises:
        UsageError: the text is not a duration, or does not fit into 64 bits.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_int64(value * _DURATION_UNITS[bare], value)
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise UsageError(
            f"{value!r} is not a duration: write a number with a unit (ns, us, ms, s, m, h, d, w),"
            f' such as "{_nearest_duration(value)}", or a bare integer of {_BARE_NAMES[bare]}'
        )
    parts = _DURATION_PART.findall(value)
    total = sum(int(Fraction(number.rstrip(".")) * _DURATION_UNITS[unit]) for number, unit in parts)
    return _in_int64(-total if value.startswith("-") else total, value)


def _nearest_duration(value: object) -> str:
    """The valid duration closest to the likely meaning of `value`."""
    words = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(value), re.ASCII)
    if words is None:
        return "30d"
    number, unit = words.group(1), words.group(2).lower()
    spelled = {"ms": "ms", "mil": "ms", "us": "us", "mic": "us", "ns": "ns", "nan": "ns"}
    short = spelled.get(unit) or spelled.get(unit[:3]) or unit[:1]
    if unit[:2] == "mo":
        return f"{Decimal(number) * 30}d"
    if unit[:1] == "y":
        return f"{Decimal(number) * 365}d"
    return f"{number}{short if short in _DURATION_UNITS else 's'}"


def _in_int64(ns: int, written: object) -> int:
    if not -INT64_MAX <= ns <= INT64_MAX:
        raise UsageError(f"{written!r} is out of range: a duration is at most 292 years")
    return ns


def format_duration(ns: int) -> str:
    """Write a duration exactly, as `parse_duration` reads it: `30d`, `1h30m`, `1.5s`."""
    rest = abs(ns)
    text = ""
    for unit, length in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        count, rest = divmod(rest, length)
        text += f"{count}{unit}" if count else ""
    if rest or not text:
        text += _format_seconds(rest) if rest else "0s"
    return f"-{text}" if ns < 0 else text


def spell_duration(ns: int) -> str:
    """Write a duration exactly and in words: `30 days`, `1 hour 30 minutes`."""
    rest, words = abs(ns), []
    for name, length in _SPELLED_UNITS.items():
        count, rest = divmod(rest, length)
        if count:
            words.append(f"{count} {name}" if count == 1 else f"{count} {name}s")
    text = " ".join(words) or "0 seconds"
    return f"minus {text}" if ns < 0 else text


def _format_seconds(ns: int) -> str:
    unit = next(unit for unit in ("s", "ms", "us", "ns") if ns >= _DURATION_UNITS[unit])
    return f"{_plain(Decimal(ns) / _DURATION_UNITS[unit])}{unit}"


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_size(value: str | int) -> int:
    """Read a size: an integer, or a number with a unit (`10GiB`, `1.5 TiB`, `10m` = 10,000,000).

    The units are those of pydantic's `ByteSize`, in any case; exact, truncated to whole bytes.

    Returns:
        Bytes; negative if written so.

    Raises:
        UsageError: the text is not a size.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match.group(3).lower() not in _SIZE_UNITS:
        raise UsageError(
            f"{value!r} is not a size: write an integer of bytes, or a number with a unit"
            " (KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB of 1000), such as 256MiB"
        )
    sign, number, unit = match.groups()
    size = int(Fraction(number.rstrip(".")) * _SIZE_UNITS[unit.lower()])
    return -size if sign == "-" else size


def format_size(size: int) -> str:
    """Write bytes for people, in powers of 1024 and rounded to two decimals: `1.5 GiB`."""
    power = max(abs(size).bit_length() - 1, 0) // 10
    if power == 0:
        return f"{size} B"
    if round(abs(size) / _KIB**power, 2) == _KIB:
        power += 1
    return f"{_plain(Decimal(f'{size / _KIB**power:.2f}'))} {_BINARY_UNITS[power]}"


def parse_instant(value: str | int | date) -> int:
    """Read an instant: RFC 3339 with an offset and up to nine decimals, integer nanoseconds, a `datetime` or a `date`.

    A `datetime` (a pandas `Timestamp` is one, with its nanoseconds) must have a time zone, as a
    text must have an offset: without one the instant is ambiguous. A `date` is its first instant, UTC.

    Returns:
        Nanoseconds since the epoch, UTC, exact.

    Raises:
        UsageError: the value is not an instant, has no time zone, or is outside the 64-bit range
    (1677 to 2262).
    """
    ns = parse_any_instant(value)
    if not -INT64_MAX - 1 <= ns <= INT64_MAX:
        raise UsageError(f"{value!r} is out of range: instants lie between 1677 and 2262")
    return ns


def parse_any_instant(value: str | int | date) -> int:
    """Read an instant as `parse_instant`, including one outside the 64-bit range.

    Raises:
        UsageError: the value is not an instant, or has no time zone.
    """
    if isinstance(value, datetime):
        return _of_datetime(value)
    if isinstance(value, date):
        return _of_datetime(datetime(value.year, value.month, value.day, tzinfo=UTC))
    return int(value) if _is_whole(value) else _parse_rfc3339(value)


def parse_as_of(value: str | int | date, now_ns: int) -> int:
    """Read an instant: as `parse_instant`, or a date (its first instant, UTC), `now`, or `now-` or `now+` a duration.

    Args:
        value: the text, integer nanoseconds since the epoch, a date, or a datetime with a time zone.
        now_ns: the clock's reading, nanoseconds since the epoch.

    Returns:
        Nanoseconds since the epoch, UTC, exact.

    Raises:
        UsageError: the text is not an instant, or is outside the 64-bit range (1677 to 2262).
    """
    near = _NEAR_NOW.fullmatch(value) if isinstance(value, str) else None
    if near is not None:
        distance = parse_duration(near["distance"] or "0s")
        return now_ns + distance if near["sign"] == "+" else now_ns - distance
    is_date = isinstance(value, str) and _DATE.fullmatch(value)
    try:
        return parse_instant(f"{value}T00:00:00Z" if is_date else value)
    except UsageError as error:
        raise UsageError(
            f"{error}; a date such as 2026-11-20 and now-1d are instants, too"
        ) from error


def _is_whole(value: object) -> bool:
    """Whether a value is an integer (Python or numpy), or text of one."""
    if isinstance(value, str):
        return re.fullmatch(r"-?\d+", value, re.ASCII) is not None
    return isinstance(value, Integral) and not isinstance(value, bool)


def _of_datetime(value: datetime) -> int:
    if value != value:  # noqa: PLR0124  (pandas' NaT, which is a datetime and equals nothing)
        raise UsageError(
            f"{value} is not an instant: leave out, or replace, times that are missing"
        )
    zone = value.utcoffset()
    if zone is None:
        raise UsageError(
            f"{value} has no time zone, so its instant is unknown: give it one, such as "
            "datetime(2026, 11, 20, tzinfo=timezone.utc), or with pandas .tz_localize('UTC')"
        )
    day = value.toordinal() - _EPOCH.toordinal()
    clock = timedelta(
        hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
    )
    elapsed = timedelta(days=day) + clock - zone
    micros = elapsed // timedelta(microseconds=1)
    return micros * MICROSECOND + int(getattr(value, "nanosecond", 0))


def _parse_rfc3339(value: object) -> int:
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise UsageError(
            f"{value!r} is not an instant: write RFC 3339 with an offset, such as"
            " 2026-11-20T00:00:00Z or 2026-11-20T01:00:00.123456789+01:00, or integer nanoseconds"
            " since the epoch"
        )
    try:
        moment = datetime.fromisoformat("{day}T{clock}{offset}".format_map(match.groupdict()))
    except ValueError as error:
        raise UsageError(f"{value!r} is not an instant: {error}") from error
    return _of_datetime(moment) + int((match["decimals"] or "").ljust(9, "0"))


def format_instant(ns: int) -> str:
    """Write nanoseconds since the epoch as RFC 3339 in UTC, with as many decimals as necessary.

    A year beyond 9999 or before 0 has a sign, and more digits if needed (ISO 8601).
    """
    seconds, rest = divmod(ns, SECOND)
    # The calendar repeats after 400 years; Python's ends with the year 9999.
    cycles, seconds = divmod(seconds, _CALENDAR_CYCLE_S)
    moment = _EPOCH + timedelta(seconds=seconds)
    year = moment.year + 400 * cycles
    sign = "" if 0 <= year <= MAXYEAR else "+" if year > 0 else "-"
    decimals = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{sign}{abs(year):04d}-{moment:%m-%dT%H:%M:%S}{decimals}Z"


def go_duration(ns: int) -> str:
    """A whole number of seconds as Go prints a duration: 45s, 1m40s, 24h0m0s."""
    minutes, seconds = divmod(ns // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
