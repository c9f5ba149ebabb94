"""Iggy's expiries and topic sizes, in the words of its commands and the numbers of its wire."""

from __future__ import annotations

import re

from retention.core.units import parse_size
from retention.errors import UsageError

SERVER_DEFAULT = 0
"""The wire's number for the server's default."""
UNLIMITED = 2**64 - 1
"""The wire's number for never, or for no limit of size."""

_NEVER = frozenset({"never", "none", "None", "unlimited", "Unlimited", "never_expire"})
_DEFAULT = frozenset({"default", "Default", "server_default", "Server_default"})
_UNITS_NS = {
    ("nanos", "nsec", "ns"): 1,
    ("usec", "us", "µs"): 1_000,
    ("millis", "msec", "ms"): 1_000_000,
    ("seconds", "second", "secs", "sec", "s"): 1_000_000_000,
    ("minutes", "minute", "mins", "min", "m"): 60 * 1_000_000_000,
    ("hours", "hour", "hrs", "hr", "h"): 3_600 * 1_000_000_000,
    ("days", "day", "d"): 86_400 * 1_000_000_000,
    ("weeks", "week", "wks", "wk", "w"): 604_800 * 1_000_000_000,
    ("months", "month", "M"): 2_630_016 * 1_000_000_000,
    ("years", "year", "yrs", "yr", "y"): 31_557_600 * 1_000_000_000,
}
_LENGTH_NS = {word: length for words, length in _UNITS_NS.items() for word in words}
_PART = re.compile(r"\s*(\d+)\s*([a-zA-Zµ]+)\s*", re.ASCII)
_LONGEST_SPELLED_US = (2**32 - 1) * 1_000_000


def parse_expiry(value: str | int) -> int:
    """Read a topic's `message_expiry` (iggy `IggyExpiry`, humantime; docs/semantics/topics.md).

    Args:
        value: a word for never or for the server's default, a duration such as `7d` or `1h 30m`, at most 2^32 - 1
            seconds, or the wire's integer of microseconds.

    Returns:
        The wire's number: `SERVER_DEFAULT`, `UNLIMITED`, or microseconds, truncated.

    Raises:
        UsageError: the value is none of these.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= UNLIMITED:
            raise UsageError(f"{value} is out of range: an expiry is 0 to {UNLIMITED} microseconds")
        return value
    word = _word(value)
    if word is not None:
        return word
    expiry_us = _humantime_ns(value) // 1_000
    if expiry_us > _LONGEST_SPELLED_US:
        raise UsageError(f"{value!r} is out of range: Iggy takes at most 4294967295s; write never")
    if not expiry_us:
        raise UsageError(f"{value!r} is the server's default to Iggy; write server_default, or 1us")
    return expiry_us


def parse_topic_size(value: str | int) -> int:
    """Read a topic's `max_topic_size` (iggy `MaxTopicSize`): a word, a size such as `50GiB`, or the wire's integer.

    Returns:
        The wire's number: `SERVER_DEFAULT`, `UNLIMITED`, or bytes.

    Raises:
        UsageError: the value is none of these; also a bare 0, which trimmed whole topics in servers of 0.8.
    """
    word = _word(value)
    size = parse_size(value) if word is None else word
    if not 0 <= size <= UNLIMITED:
        raise UsageError(f"{value!r} is out of range: a topic's size is 1 to {UNLIMITED} bytes")
    if size == 0 and word is None:
        raise UsageError(
            f"{value!r} is refused: to some servers it is their default, to others it empties the topic; write"
            " server_default, unlimited, or a size"
        )
    return size


def _word(value: object) -> int | None:
    if isinstance(value, str) and value in _NEVER:
        return UNLIMITED
    return SERVER_DEFAULT if isinstance(value, str) and value in _DEFAULT else None


def _humantime_ns(value: object) -> int:
    text = value if isinstance(value, str) else ""
    parts = _PART.findall(text)
    if not parts or "".join(_PART.split(text)[::3]) or any(u not in _LENGTH_NS for _, u in parts):
        raise UsageError(
            f"{value!r} is not an expiry: write never, server_default, numbers with units (us, ms, s, m, h, d, w, M, y)"
            ' such as "7d" or "1h 30m", or a bare integer of microseconds'
        )
    return sum(int(number) * _LENGTH_NS[unit] for number, unit in parts)
