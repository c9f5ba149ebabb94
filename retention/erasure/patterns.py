"""The search for millions of byte strings at once: sampled windows admit places, hashes of 12 bytes name patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import pyarrow as pa

from retention.erasure.encodings import MIN_BYTES, Form, Strings

WINDOW = 8
"""The bytes of one hashed window: one unaligned 64-bit word."""
_MAX_STRIDE = MIN_BYTES - WINDOW + 1
"""The widest sampling at which the shortest pattern still contains a whole sampled window."""
_OWNER_BITS = 26
_OWNER = np.uint64((1 << _OWNER_BITS) - 1)
"""The low bits of an entry of the index: which pattern it is; the others are the hash of its rarest bytes."""
_KEY = ~_OWNER
MAX_WINDOWS = 1 << 26
"""The windows that the index should hold at most; with more patterns, fewer of each are indexed, and more of the text
is sampled instead."""
_BATCH_BYTES = 1 << 20
_BATCH_STRINGS = 1 << 16
_BLOCK = 1 << 18
"""The bytes probed at once, so that intermediate arrays stay in the processor's cache."""
_MIN_BITS, _MAX_BITS = 20, 28
_SCORE_BITS = 18
_RUN = 1 << 24
"""The score of a window in a run of one byte."""
_OUTSIDE = 1 << 30
"""The score of 12 bytes that are not in one pattern; more than 5 windows have."""
_PLACE_BITS = 32
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_EXPANDED = 1 << 20
"""The candidates compared at once."""


@dataclass(frozen=True)
class Match:
    """A string in a form, at an offset."""

    pattern: int
    string: int
    """Its place among the strings of the index."""
    form: int
    """Its place among the forms of the index."""
    offset: int


class PatternIndex:
    """Strings in several forms, each indexed by windows of its rarest 12 bytes."""

    def __init__(self, strings: pa.LargeBinaryArray, forms: Sequence[Form]) -> None:
        """Index the strings, each of at least 12 bytes."""
        self._strings, self.forms = strings, forms
        self.longest = 0
        most = max(len(strings) * len(forms), 1)
        self._stride = max(1, min(_MAX_STRIDE, MAX_WINDOWS // most))
        self._windows, self._rare = _Table(most * self._stride), _Table(most)
        parts = [_no_columns(), *self._encoded()]
        *columns, cores = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._string, self._form, self._length, self._core, self._head, self._tail = columns
        del parts
        self._cores = cores & _KEY
        self._cores |= np.arange(len(cores), dtype=np.uint64)
        self._cores.sort()
        self._pattern = lru_cache(1 << 14)(self._encode)

    @property
    def patterns(self) -> int:
        """The number of strings times the forms in which each differs."""
        return len(self._string)

    def length(self, pattern: int) -> int:
        """The bytes of a pattern."""
        return int(self._length[pattern])

    def of_form(self, form: int, is_chosen: np.ndarray) -> np.ndarray:
        """A mask of the patterns of one form of chosen strings, given as a mask of these."""
        return (self._form == form) & is_chosen[self._string]

    def matches(
        self, content: bytes | memoryview | pa.Buffer, is_done: np.ndarray
    ) -> Iterator[Match]:
        """Every occurrence in the content of each pattern that `is_done` (one place a pattern) does not exclude.

        The caller may exclude more on the way; a pattern that is everywhere then costs little.
        """
        data = np.frombuffer(content, np.uint8)
        if not self.patterns or len(data) < MIN_BYTES:
            return
        view = memoryview(content)
        step = _BLOCK - _BLOCK % self._stride
        for begin in range(0, len(data) - WINDOW + 1, step):
            block = data[begin : begin + step + WINDOW - 1]
            for pattern, offset in self._candidates(block, begin, data, is_done):
                wanted = self._pattern(pattern)
                if not is_done[pattern] and view[offset : offset + len(wanted)] == wanted:
                    yield Match(
                        pattern, int(self._string[pattern]), int(self._form[pattern]), offset
                    )

    def _encoded(self) -> Iterator[tuple[np.ndarray, ...]]:
        """The columns of the patterns, a batch of strings in one form at a time."""
        for begin, batch in _batches(self._strings):
            strings = Strings.of(batch)
            for number, form in enumerate(self.forms):
                patterns, places = form.encode(strings)
                if len(places):
                    self.longest = max(self.longest, int(patterns.lengths.max()))
                    owners = places.astype(np.uint32) + np.uint32(begin)
                    numbers = np.full(len(places), number, np.uint8)
                    *columns, cores, windows = _columns(patterns, self._stride)
                    self._windows.add(windows)
                    self._rare.add(cores)
                    yield owners, numbers, *columns, cores

    def _candidates(
        self, block: np.ndarray, begin: int, data: np.ndarray, is_done: np.ndarray
    ) -> Iterator[tuple[int, int]]:
        """Patterns and offsets in `data` where the rarest bytes, the head and the tail agree."""
        places = self._windows.admits(_hashes(block, self._stride))
        starts = begin + places[:, None] * self._stride - np.arange(self._stride)
        starts = starts[(starts >= 0) & (starts + MIN_BYTES <= len(data))]
        cores = _mixed(data, starts)
        near = self._rare.admits(cores)
        starts, keys = starts[near], cores[near] & _KEY
        first = np.searchsorted(self._cores, keys)
        counts = np.searchsorted(self._cores, keys | _OWNER, "right") - first
        for chosen in _split(counts):
            count = counts[chosen]
            rows = np.repeat(first[chosen] - np.cumsum(count) + count, count)
            pattern = (self._cores[rows + np.arange(len(rows))] & _OWNER).astype(np.int64)
            offset = np.repeat(starts[chosen], count) - self._core[pattern]
            last = offset + self._length[pattern] - MIN_BYTES
            inside = (offset >= 0) & (last + MIN_BYTES <= len(data)) & ~is_done[pattern]
            pattern, offset, last = pattern[inside], offset[inside], last[inside]
            alike = (_check(data, offset) == self._head[pattern]) & (
                _check(data, last) == self._tail[pattern]
            )
            yield from zip(pattern[alike].tolist(), offset[alike].tolist(), strict=True)

    def _encode(self, pattern: int) -> bytes:
        strings = Strings.of(self._strings.slice(int(self._string[pattern]), 1))
        encoded, _ = self.forms[int(self._form[pattern])].encode(strings)
        return encoded.content.tobytes()


def _batches(strings: pa.LargeBinaryArray) -> Iterator[tuple[int, pa.LargeBinaryArray]]:
    """The strings in batches of bounded bytes, each with the place of its first."""
    begin = 0
    ends = np.frombuffer(strings.buffers()[1], np.int64, len(strings) + 1, strings.offset * 8)
    while begin < len(strings):
        end = int(np.searchsorted(ends, ends[begin] + _BATCH_BYTES, "right")) - 1
        end = min(max(end, begin + 1), begin + _BATCH_STRINGS, len(strings))
        yield begin, strings.slice(begin, end - begin)
        begin = end


class _Table:
    """A table of bits that admits all hashes of a set, and few others: two bits of each hash are set."""

    def __init__(self, size: int) -> None:
        """Make the table for a number of hashes."""
        self._bits = min(_MAX_BITS, max(_MIN_BITS, int(16 * size).bit_length()))
        self._set = np.zeros(1 << self._bits >> 3, np.uint8)

    def add(self, hashes: np.ndarray) -> None:
        """Add hashes to the set."""
        for part in (hashes, _rehashed(hashes)):
            slots = part >> np.uint64(64 - self._bits)
            np.bitwise_or.at(self._set, slots >> np.uint64(3), _bit(slots))

    def admits(self, hashes: np.ndarray) -> np.ndarray:
        """The places of the hashes that may be in the set."""
        places = self._having(hashes)
        return places[self._having(_rehashed(hashes[places]))]

    def _having(self, hashes: np.ndarray) -> np.ndarray:
        slots = hashes >> np.uint64(64 - self._bits)
        return np.flatnonzero(self._set[slots >> np.uint64(3)] & _bit(slots))


def _no_columns() -> tuple[np.ndarray, ...]:
    """The columns of no patterns: string, form, length, core, checks of head and tail, hashes of the rarest bytes."""
    types = (np.uint32, np.uint8, np.uint32, np.uint32, np.uint32, np.uint32, np.uint64)
    return tuple(np.zeros(0, each) for each in types)


def _columns(patterns: Strings, stride: int) -> tuple[np.ndarray, ...]:
    """Length, place of the rarest 12 bytes, checks of head and tail, hash of the rarest, and windows of patterns."""
    lengths, begins = patterns.lengths, patterns.begins
    data = np.append(patterns.content, np.zeros(WINDOW, np.uint8))
    hashes = _hashes(data, 1)
    cores = _rarest(hashes, begins, lengths)
    windows = hashes[(begins + cores)[:, None] + np.arange(stride)].ravel()
    tails = begins + lengths - MIN_BYTES
    checks = _check(data, begins), _check(data, tails)
    numbers = lengths.astype(np.uint32), cores.astype(np.uint32)
    return *numbers, *checks, _mixed(data, begins + cores), windows


def _rarest(hashes: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The offset in each pattern of the 12 bytes whose windows are rarest among all of them, runs of a byte last."""
    slots = (hashes >> np.uint64(64 - _SCORE_BITS)).astype(np.intp)
    score = np.bincount(slots, minlength=1 << _SCORE_BITS).astype(np.int32)[slots]
    score[:-1][hashes[:-1] == hashes[1:]] += np.int32(min(len(hashes), _RUN))
    total = np.zeros(int(lengths.sum()), np.int64)
    for shift in range(_MAX_STRIDE):
        total[: len(score) - shift] += score[shift : shift + len(total)]
    # The 12 bytes must lie inside their pattern.
    total[((begins + lengths)[:, None] - np.arange(1, MIN_BYTES)).ravel()] = _OUTSIDE
    total <<= _PLACE_BITS
    total += np.arange(len(total))
    return (np.minimum.reduceat(total, begins) & ((1 << _PLACE_BITS) - 1)) - begins


def _hashes(data: np.ndarray, stride: int) -> np.ndarray:
    """The hash of the window at every `stride`-th byte."""
    return _words(data, stride) * _FIRST


def _words(data: np.ndarray, stride: int) -> np.ndarray:
    count = max((len(data) - WINDOW) // stride + 1, 0)
    return np.ndarray((count,), "<u8", data, 0, (stride,))


def _check(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    """A 32-bit hash of the 12 bytes at each place."""
    return (_mixed(data, places) >> np.uint64(32)).astype(np.uint32)


def _mixed(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    """A hash of the 12 bytes at each place."""
    words = _words(data, 1)
    return words[places] * _FIRST ^ words[places + MIN_BYTES - WINDOW] * _SECOND


def _rehashed(hashes: np.ndarray) -> np.ndarray:
    return (hashes ^ hashes >> np.uint64(29)) * _SECOND


def _bit(slots: np.ndarray) -> np.ndarray:
    return np.left_shift(np.uint8(1), (slots & np.uint64(7)).astype(np.uint8))


def _split(counts: np.ndarray) -> Iterator[np.ndarray]:
    """The places with candidates, in groups of bounded candidates."""
    places = np.flatnonzero(counts)
    groups = np.cumsum(counts[places]) // _EXPANDED
    yield from islice(np.split(places, np.flatnonzero(np.diff(groups)) + 1), len(places))
