"""The needles of an erasure: the distinct strings that were removed and that no message left contains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core import headers
from retention.erasure.encodings import FORMS, MIN_BYTES, RAW
from retention.erasure.patterns import PatternIndex

KINDS = ("subject", "key", "payload", "header", "msg_id", "value")
HEAD_BYTES = 32
"""The bytes of a value that truncated statistics still contain: Delta keeps 32 characters, Parquet 64 bytes."""
MAX_WHOLE_BYTES = 4 << 10
_HEAD_AND_WHOLE = 2
"""The strings of a value that is longer than its head, and not too long to be searched whole."""
_PIECES = 8
_PIECE_BYTES = 64
_KEY_SUBJECT = r"^\$KV\.[^.]+\."


@dataclass(frozen=True)
class Needles:
    """Strings to search, each a whole value or a part of a long one."""

    strings: pa.LargeBinaryArray
    kinds: np.ndarray
    """The place of each string's kind in `KINDS`."""
    values: np.ndarray
    """The number of the value that each string belongs to, ascending."""
    too_short: int = 0
    """The distinct values left out because they are shorter than 12 bytes."""
    shared: int = 0
    """The distinct values left out because messages that stay contain them."""

    def __len__(self) -> int:
        """The number of strings."""
        return len(self.strings)

    def without(self, survivors: Iterable[pa.Table]) -> Needles:
        """The needles that no survivor (tables of messages) contains, as a whole value or as a part of one.

        A whole value is left out, too, if no survivor has its first bytes: those are searched instead.
        """
        if not len(self):
            return self
        is_shared = self._shared_with(survivors)
        begins = np.flatnonzero(np.diff(self.values, prepend=-1))
        counts = np.diff(begins, append=len(self))
        is_lost = np.logical_and.reduceat(is_shared, begins)
        is_implied = np.zeros(len(self), bool)
        is_implied[begins[(counts == _HEAD_AND_WHOLE) & ~is_shared[begins]] + 1] = True
        return self.chosen(~is_shared & ~is_implied, self.shared + int(is_lost.sum()))

    def chosen(self, is_left: np.ndarray, shared: int) -> Needles:
        """The needles of a mask, each string once, and the number of values that are shared."""
        return replace(self._only(is_left).distinct, shared=shared)

    def has_any_of(self, others: Needles) -> np.ndarray:
        """A mask of the needles whose string others have."""
        return pc.is_in(self.strings, value_set=others.strings).to_numpy(zero_copy_only=False)

    @cached_property
    def index(self) -> PatternIndex:
        """The index of the strings in every form, made once."""
        return PatternIndex(self.strings, FORMS)

    @cached_property
    def distinct(self) -> Needles:
        """The needles with each string once."""
        places = pc.index_in(self.strings, pc.unique(self.strings)).to_numpy()
        _, firsts = np.unique(places, return_index=True)
        return self if len(firsts) == len(self) else self._only(np.sort(firsts))

    def joined(self, other: Needles) -> Needles:
        """These needles and those of others that they lack."""
        firsts = self.values.max(initial=-1) + 1
        is_known = pc.is_in(other.strings, value_set=self.strings).to_numpy(zero_copy_only=False)
        if not len(other) or is_known.all():
            return self
        return replace(
            self,
            strings=pa.concat_arrays([self.strings, other.strings]),
            kinds=np.concatenate([self.kinds, other.kinds]),
            values=np.concatenate([self.values, other.values + firsts]),
            too_short=self.too_short + other.too_short,
        )

    def part(self, begin: int, size: int) -> Needles:
        """At most `size` needles from a place on."""
        return self._only(np.arange(begin, min(begin + size, len(self))))

    def _only(self, chosen: np.ndarray) -> Needles:
        """The needles at some places, or of a mask."""
        places = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        return replace(
            self,
            strings=self.strings.take(pa.array(places)),
            kinds=self.kinds[places],
            values=self.values[places],
        )

    def _shared_with(self, survivors: Iterable[pa.Table]) -> np.ndarray:
        """Whether each needle is in a survivor."""
        distinct = pc.unique(self.strings)
        index = PatternIndex(distinct, (RAW,))
        is_shared = np.zeros(len(distinct), bool)
        for rows in survivors:
            for values in _columns_of(rows):
                _mark_contained(index, values, is_shared)
        return is_shared[pc.index_in(self.strings, distinct).to_numpy()]


def needles_of_rows(rows: Iterable[pa.Table]) -> Needles:
    """The needles of removed messages (tables of shape `MESSAGES`): every value of at least 12 bytes."""
    parts: dict[str, list[pa.Array]] = {kind: [] for kind in KINDS}
    for table in rows:
        for kind, values in _values_of(table):
            parts[kind].append(pc.unique(values.cast(pa.large_binary())))
    values = {
        kind: pc.unique(pa.chunked_array(arrays, pa.large_binary())).drop_null()
        for kind, arrays in parts.items()
    }
    return needles_of_values(values)


def needles_of_values(values: Mapping[str, pa.Array]) -> Needles:
    """The needles of the distinct values of each kind."""
    strings: list[pa.Array] = []
    kinds, numbers = [], []
    too_short = first = 0
    for kind, of_kind in values.items():
        lengths = pc.binary_length(of_kind).to_numpy(zero_copy_only=False)
        too_short += int(((lengths > 0) & (lengths < MIN_BYTES)).sum())
        whole = of_kind.filter(pa.array((lengths >= MIN_BYTES) & (lengths <= HEAD_BYTES)))
        pieces = [
            _pieces(value.as_py()) for value in of_kind.filter(pa.array(lengths > HEAD_BYTES))
        ]
        counts = np.append(np.ones(len(whole), np.int64), [len(each) for each in pieces]).astype(
            int
        )
        numbers.append(np.repeat(np.arange(first, first + len(counts)), counts))
        kinds.append(np.full(int(counts.sum()), KINDS.index(kind), np.uint8))
        strings += [whole, pa.array(chain.from_iterable(pieces), pa.large_binary())]
        first += len(counts)
    return Needles(
        pa.concat_arrays(strings) if strings else pa.array([], pa.large_binary()),
        np.concatenate(kinds) if kinds else np.zeros(0, np.uint8),
        np.concatenate(numbers) if numbers else np.zeros(0, np.int64),
        too_short,
    )


def _pieces(value: bytes) -> list[bytes]:
    """The strings that represent a value longer than its head: that first, then itself or parts from all over it."""
    head = _head(value)
    if len(value) <= MAX_WHOLE_BYTES:
        return [head, value]
    spacing = (len(value) - _PIECE_BYTES) / (_PIECES - 1)
    begins = [round(number * spacing) for number in range(_PIECES)]
    return [head, *(value[begin : begin + _PIECE_BYTES] for begin in begins)]


def _head(value: bytes) -> bytes:
    """The first bytes of a value, up to the end of a character if it begins as UTF-8."""
    for cut in range(4):
        head = value[: HEAD_BYTES - cut]
        try:
            head.decode()
        except UnicodeDecodeError:
            continue
        return head
    return value[:HEAD_BYTES]


def _values_of(rows: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """The values of messages by kind."""
    for name in ("subject", "payload", "msg_id"):
        if name in rows.schema.names:
            yield name, rows[name].combine_chunks()
    if "subject" in rows.schema.names:
        subjects = pc.unique(rows["subject"])
        of_keys = subjects.filter(pc.match_substring_regex(subjects, _KEY_SUBJECT))
        yield "key", pc.replace_substring_regex(of_keys, _KEY_SUBJECT, "")
    if "headers" in rows.schema.names:
        blocks = pc.unique(rows["headers"]).drop_null().to_pylist()
        pairs = [pair for block in blocks for pair in headers.parse(block)]
        for kind, is_id in (("msg_id", True), ("header", False)):
            texts = {value for name, value in pairs if (name == headers.MSG_ID) == is_id}
            encoded = sorted(text.encode(errors="surrogateescape") for text in texts)
            yield kind, pa.array(encoded, pa.large_binary())


def _columns_of(rows: pa.Table) -> Iterator[pa.LargeBinaryArray]:
    """Every column of text, which often repeats, once for each value, and every one of bytes."""
    for column in rows.columns:
        if pa.types.is_string(column.type):
            yield pc.unique(column).drop_null().cast(pa.large_binary())
        elif pa.types.is_binary(column.type):
            for values in column.chunks:
                yield values.cast(pa.large_binary())


def _mark_contained(
    index: PatternIndex, values: pa.LargeBinaryArray, is_contained: np.ndarray
) -> None:
    """Mark the strings of the index that one of the values contains."""
    _, offsets, content = values.buffers()
    if content is None or not len(values):
        return
    ends = np.frombuffer(offsets, np.int64, len(values) + 1, values.offset * 8)
    inside = memoryview(content)[int(ends[0]) : int(ends[-1])]
    for match in index.matches(inside, is_contained):
        begin = match.offset + int(ends[0])
        end = ends[np.searchsorted(ends, begin, "right")]
        is_contained[match.string] |= begin + index.length(match.pattern) <= end
