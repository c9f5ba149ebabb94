"""One log of an Iggy partition, read from its first byte to its last in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.formats.iggy import repair, rows
from retention.formats.iggy.era import TORN, Era
from retention.formats.iggy.findings import Damage, Finding, Hole, Tear
from retention.formats.iggy.messages import MessageColumns
from retention.formats.iggy.rows import END_OF_OFFSETS, ROWS
from retention.formats.iggy.source import WINDOW_BYTES, OpenLog, opened

_PART_ROWS = 65_536
_PART_BYTES = 16 << 20
_AS_WELL = "it is damaged as well"


@dataclass(frozen=True)
class SegmentLog:
    """A `<20 digits>.log` file with one segment."""

    location: str
    partition: int
    segment: int
    """The number in the log's name; no offset in the log is lower."""
    size: int
    """The size in bytes."""
    end: int | None
    """The number in the name of the next log; None for the active log."""


@dataclass(frozen=True)
class SegmentSlice:
    """A part of a log's messages, and the findings among them."""

    rows: pa.RecordBatch
    """Shape `ROWS`, in order of offset; may be empty."""
    findings: tuple[Finding, ...]
    next_offset: int
    """The first offset after the read ones, damaged ones included."""


def read_log(log: SegmentLog, era: Era) -> Iterator[SegmentSlice]:
    """Read a log in parts of at most 65,536 rows or 16 MiB, or one window or record more; at least one part.

    Every checksum is compared. Damaged messages and batches are omitted and reported, and reading continues with the
    next sound record. The active log may end torn or in zeros.

    Raises:
        BusyError: the file disappeared, or became shorter while it was read.
        StorageError: the storage failed.
    """
    return _pooled(_parts(log, era), log.segment)


def _parts(log: SegmentLog, era: Era) -> Iterator[SegmentSlice]:
    at, before, window_bytes = 0, log.segment - 1, WINDOW_BYTES
    with opened(log.location, log.size) as source:
        while at < log.size:
            window = source.read(at, window_bytes)
            taken = era.take(window, log.size - at)
            part = _sound_part(log, era, window, taken.messages, before)
            yield part
            at, before = at + taken.end, part.next_offset - 1
            window_bytes = max(WINDOW_BYTES, taken.wants)
            if taken.problem:
                at, part = _damaged_part(log, source, era, _Trouble(at, taken.problem, before))
                yield part
                before = part.next_offset - 1


@dataclass(frozen=True)
class _Trouble:
    at: int
    problem: str
    before: int
    """The highest offset before the invalid record."""


def _sound_part(
    log: SegmentLog, era: Era, window: bytes, messages: MessageColumns, before: int
) -> SegmentSlice:
    """The part of complete records; messages that cannot be rows are damage."""
    end = END_OF_OFFSETS if log.end is None else log.end
    problems = rows.problems(messages, before, end)
    fit = np.ones(len(messages), dtype=bool)
    fit[list(problems)] = False
    offsets = np.where(messages.sound, messages.offsets, messages.places)
    damages = [
        Damage(log.location, int(offsets[nth]), problem) for nth, problem in problems.items()
    ]
    counted = offsets[(fit | ~messages.sound) & (offsets < np.uint64(end))].astype(np.int64)
    holes = _holes(log, before, counted) if era.is_gapless else []
    kept = messages.only(fit) if problems else messages
    batch = rows.rows(window, kept, log.partition, log.segment) if len(kept) else _no_rows()
    return SegmentSlice(batch, (*damages, *holes), int(counted.max(initial=before)) + 1)


def _holes(log: SegmentLog, before: int, offsets: np.ndarray) -> list[Hole]:
    """The holes in ascending offsets that follow `before`: after 4, the offsets 5 and 8 have the hole 6 to 7."""
    lows, highs = np.concatenate([[before], offsets[:-1]]), offsets
    gaps = np.flatnonzero(highs - lows > 1)
    return [Hole(log.location, int(lows[nth]) + 1, int(highs[nth]) - 1) for nth in gaps]


def _damaged_part(
    log: SegmentLog, source: OpenLog, era: Era, trouble: _Trouble
) -> tuple[int, SegmentSlice]:
    """The byte where the log continues after an invalid record, and the findings for the omitted records."""
    at, before = trouble.at, trouble.before
    if log.end is None and repair.is_zeros(source, at):
        return log.size, SegmentSlice(_no_rows(), (), before + 1)
    end = END_OF_OFFSETS if log.end is None else log.end
    sound = repair.first_sound(source, era, at + 1, before + 1, end)
    if sound is None and log.end is None and trouble.problem == TORN:
        return log.size, SegmentSlice(_no_rows(), (Tear(log.location, before + 1, at),), before + 1)
    stop, high = (sound.at, sound.offset) if sound else (log.size, log.end)
    claimed = repair.offsets_between(source, era, at, stop)
    if claimed is None:
        last = before + 1 if high is None else high - 1
        damage = Damage(log.location, before + 1, trouble.problem, last)
        return stop, SegmentSlice(_no_rows(), (damage,), last + 1)
    named = repair.names(claimed, before, high, first_is_next=era.is_gapless)
    reasons = [trouble.problem] + [_AS_WELL] * (len(claimed) - 1)
    damages = [Damage(log.location, *fields) for fields in zip(named, reasons, strict=True)]
    following = damages[-1].offset + 1 if high is None else high
    return stop, SegmentSlice(_no_rows(), tuple(damages), following)


def _pooled(parts: Iterable[SegmentSlice], next_offset: int) -> Iterator[SegmentSlice]:
    """Join parts into larger ones."""
    buffered: list[SegmentSlice] = []
    count = size = 0
    for part in parts:
        buffered.append(part)
        next_offset = part.next_offset
        count, size = count + part.rows.num_rows, size + part.rows.nbytes
        if count >= _PART_ROWS or size >= _PART_BYTES:
            yield _joined(buffered, next_offset)
            buffered, count, size = [], 0, 0
    yield _joined(buffered, next_offset)


def _joined(parts: list[SegmentSlice], next_offset: int) -> SegmentSlice:
    findings = tuple(finding for part in parts for finding in part.findings)
    batches = [part.rows for part in parts if part.rows.num_rows]
    return SegmentSlice(
        pa.concat_batches(batches) if batches else _no_rows(), findings, next_offset
    )


def _no_rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=ROWS)
