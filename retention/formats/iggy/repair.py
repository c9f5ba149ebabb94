"""Continuation after damage in a log: the next sound record, and the offsets of the records before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from retention.formats.iggy.era import Era
from retention.formats.iggy.source import OpenLog


@dataclass(frozen=True)
class SoundRecord:
    """A sound record: its first byte and its first offset."""

    at: int
    offset: int


def is_zeros(source: OpenLog, at: int) -> bool:
    """Whether there are only zeros from `at` to the end, as in a log with preallocated space."""
    return not any(window.strip(b"\0") for _, window in source.windows(at, 0))


def first_sound(source: OpenLog, era: Era, at: int, low: int, high: int) -> SoundRecord | None:
    """The first record from `at` on with a correct checksum and an offset from `low` to `high` (exclusive)."""
    for begin, window in source.windows(at, era.header_bytes - 1):
        for place in era.candidates(window, low, high).tolist():
            extent = era.length_and_offset(window[place : place + era.header_bytes])
            if extent is None or begin + place + extent[0] > source.size:
                continue
            record = window[place : place + extent[0]]
            if len(record) < extent[0]:
                record = source.read(begin + place, extent[0])
            if era.is_sound(record):
                return SoundRecord(begin + place, extent[1])
    return None


def offsets_between(source: OpenLog, era: Era, at: int, stop: int) -> list[int] | None:
    """The offsets that damaged records claim; None if their lengths do not lead from `at` to `stop`."""
    claimed = []
    while at < stop:
        extent = era.length_and_offset(source.read(at, era.header_bytes))
        if extent is None:
            return None
        claimed.append(extent[1])
        at += extent[0]
    return claimed if at == stop else None


def names(
    claimed: list[int], before: int, high: int | None, *, first_is_next: bool
) -> Iterator[int]:
    """Yield offsets that name damaged records: the claimed one if it is possible, or else the one after the last.

    After 4 and before 9, the claims 5, 99, 7 become 5, 6, 7.

    Args:
        claimed: the offset that each record claims.
        before: the highest offset before them.
        high: the offset of the following record; None if none follows.
        first_is_next: the first record has the offset after `before`, regardless of its claim.
    """
    for nth, offset in enumerate(claimed):
        can_be = high is not None and before < offset < high and not (nth == 0 and first_is_next)
        before = offset if can_be else before + 1
        yield before
