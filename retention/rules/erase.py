"""Erasures: the messages that a request selects by subjects or sequences, wherever copies of them lie; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.json_object import JsonObject
from retention.core.members import Members
from retention.core.spans import Array, Spans
from retention.core.subjects import is_literal, is_valid_filter, matching_mask
from retention.errors import UsageError
from retention.rules import ERASE
from retention.rules.rule import RowRule
from retention.rules.verdicts import Verdicts
from retention.schemas.deadlines import NEVER


@dataclass(frozen=True)
class ErasedMessages:
    """The messages of an erasure: those on some subjects, or with some sequences."""

    subjects: tuple[str, ...] = ()
    """Subject filters, ascending, each once."""
    seqs: tuple[int, ...] = ()
    """Ascending, each once."""
    below: int = NEVER
    """Only messages below it: those that come after the request are not part of it."""
    times: tuple[int, ...] = ()
    """The instant at which each sequence was stored, in their order, which may have one twice; empty: at any instant.

    A table that is put back from a backup assigns sequences again, to other messages."""

    @cached_property
    def wanted(self) -> Array:
        """The sequences, as an array."""
        return np.array(self.seqs, dtype=np.int64)

    @cached_property
    def _identities(self) -> frozenset[tuple[int, int]]:
        return frozenset(zip(self.seqs, self.times, strict=True))

    @cached_property
    def _literals(self) -> Members:
        return Members(pa.array(list(filter(is_literal, self.subjects)), pa.string()))

    @cached_property
    def _filters(self) -> frozenset[str]:
        return frozenset(self.subjects)

    def names(self, text: str) -> bool:
        """Whether a text is one of the filters as they were given."""
        return text in self._filters

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        return tuple(subject for subject in self.subjects if not is_literal(subject))

    def on_subjects(self, subjects: pa.Array | pa.ChunkedArray) -> Array:
        """A mask of the subjects that match; none if the erasure names sequences."""
        mask = self._literals.mask(subjects)
        if self._patterns:
            mask = pc.or_(mask, matching_mask(subjects, self._patterns))
        return np.asarray(mask)

    def takes(self, rows: pa.Table) -> Array:
        """A mask of these rows: `seq`, `subject`, and, if times are named, `ts_ns`."""
        seqs = rows["seq"].to_numpy()
        meant = _is_among(seqs, self.wanted)
        if self.times and meant.any():
            near = zip(seqs[meant].tolist(), rows["ts_ns"].to_numpy()[meant].tolist(), strict=True)
            meant[meant] = [identity in self._identities for identity in near]
        if self.subjects:
            meant |= self.on_subjects(rows["subject"].cast(pa.string()))
        return meant & (seqs < self.below)

    @property
    def in_dropped_tables(self) -> ErasedMessages:
        """The messages of the erasure in an earlier table of the stream, whose sequences are other messages."""
        return replace(self, seqs=(), times=(), below=NEVER)

    def between(self, first: int, last: int) -> ErasedMessages:
        """The messages of the erasure with sequences from `first` to `last`."""
        if not self.seqs:
            return self
        begin, end = np.searchsorted(self.wanted, [first, last + 1])
        return replace(self, seqs=self.seqs[begin:end], times=self.times[begin:end])


def _is_among(seqs: Array, wanted: Array) -> Array:
    """A mask of the sequences that are among ascending ones."""
    if not len(wanted):
        return np.zeros(len(seqs), bool)
    places = np.searchsorted(wanted[:-1], seqs)
    return np.asarray(wanted[places] == seqs)


@dataclass(frozen=True)
class Erase:
    """Remove messages so that no copy of them is left; it cannot be undone."""

    erasure: str
    """The id of the erasure, by which plans and records name the request: they never repeat it."""
    messages: ErasedMessages = field(repr=False)
    rule: ClassVar[str] = ERASE
    erase: ClassVar[bool] = True
    """True: erased messages cannot be restored."""
    wording: ClassVar[str] = "erase"

    def as_json(self) -> JsonObject:
        """The request without the messages that it names."""
        return {"rule": self.rule, "erasure": self.erasure}


@dataclass(frozen=True)
class ErasedRows(RowRule):
    """The rows of one span that an erasure selects."""

    messages: ErasedMessages
    rule = ERASE

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns needed to answer."""
        return ("subject", "ts_ns") if self.messages.times else ("subject",)

    def takes(self, rows: pa.Table) -> Array:
        """A mask of these rows."""
        return self.messages.takes(rows)


def erased_messages(subjects: Iterable[str], seqs: Iterable[int]) -> ErasedMessages:
    """The messages on some subjects, or with some sequences.

    Raises:
        UsageError: none is named, subjects and sequences are both named, or one is not valid.
    """
    filters, numbers = tuple(sorted(set(subjects))), tuple(sorted(set(seqs)))
    if bool(filters) == bool(numbers):
        raise UsageError(
            "erase: name either subjects or sequences, and at least one of them; nothing was changed"
        )
    for subject in filters:
        if not is_valid_filter(subject):
            raise UsageError(
                f"erase: {subject!r} is no subject filter, so nothing would match it; nothing was changed; tokens are "
                "separated by single dots and have no spaces, and > stands last only"
            )
    for seq in numbers:
        if not 0 <= seq < NEVER:
            raise UsageError(
                f"sequence {seq} is out of range: give a whole number from 0 to {NEVER - 1}"
            )
    return ErasedMessages(filters, numbers)


def erase(spans: Spans, request: Erase, matched: Array) -> Verdicts:
    """Decide an erasure from metadata, as far as possible.

    Args:
        spans: the stream.
        request: the erasure.
        matched: the messages of each span on its subjects.
    """
    messages = request.messages
    before = np.searchsorted(messages.wanted, spans.min_seq, side="left")
    named = np.searchsorted(messages.wanted, spans.max_seq, side="right") > before
    some = ((matched > 0) | named) & (spans.min_seq < messages.below)
    whole = some & (matched == spans.messages) & (spans.max_seq < messages.below)
    parts = {
        span: ErasedRows(messages.between(int(spans.min_seq[span]), int(spans.max_seq[span])))
        for span in np.flatnonzero(some & ~whole).tolist()
    }
    return Verdicts(request.rule, whole, parts)
