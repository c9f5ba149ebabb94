"""Where a damaged log goes on: the next sound record, and the offsets of what lies before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from retention.formats.iggy.era import Era
from retention.formats.iggy.source import Source


@dataclass(frozen=True)
class Record:
    """A sound record: where it begins, and its first offset."""

    at: int
    offset: int


def is_zeros(source: Source, at: int) -> bool:
    """Whether nothing but zeros lies from `at` to the end, as in a log whose room was allocated ahead."""
    return not any(window.strip(b"\0") for _, window in source.windows(at, 0))


def first_sound(source: Source, era: Era, at: int, low: int, high: int) -> Record | None:
    """The first record from `at` on whose checksum holds and whose offset is from `low` to before `high`."""
    for begin, window in source.windows(at, era.header_bytes - 1):
        for place in era.candidates(window, low, high).tolist():
            told = era.length_and_offset(window[place : place + era.header_bytes])
            if told is None or begin + place + told[0] > source.size:
                continue
            record = window[place : place + told[0]]
            if len(record) < told[0]:
                record = source.read(begin + place, told[0])
            if era.is_sound(record):
                return Record(begin + place, told[1])
    return None


def offsets_between(source: Source, era: Era, at: int, stop: int) -> list[int] | None:
    """The offsets that damaged records say they have; None if their lengths do not lead from `at` to `stop`."""
    said = []
    while at < stop:
        told = era.length_and_offset(source.read(at, era.header_bytes))
        if told is None:
            return None
        said.append(told[1])
        at += told[0]
    return said if at == stop else None


def names(said: list[int], before: int, high: int | None, *, first_is_next: bool) -> Iterator[int]:
    """Offsets to call damaged records by: what they say where that can be, else the one after the last.

    Args:
        said: what each says.
        before: the highest offset before them.
        high: the offset of what follows; None where nothing does.
        first_is_next: the first one has the offset after `before`, whatever it says.
    """
    for nth, offset in enumerate(said):
        can_be = high is not None and before < offset < high and not (nth == 0 and first_is_next)
        before = offset if can_be else before + 1
        yield before
