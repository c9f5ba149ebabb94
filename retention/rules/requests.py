"""Requested removals: the messages selected by a purge or a delete (NATS STREAM.PURGE, STREAM.MSG.DELETE)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from retention.core.spans import Array, Spans
from retention.core.subjects import is_valid_filter, matching_mask
from retention.errors import UsageError
from retention.rules import DELETE, DELETE_SEGMENTS, DROP, PURGE, RULES
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.jetstream.head_trim import HeadCut, head_cut
from retention.rules.purge_deletes import PurgeDeletes
from retention.rules.row_verdicts import STAYS, Answer, SpanRows, removed_ranges
from retention.schemas.messages import NEVER

_NOTHING_KEPT = HeadCut(limit=0, total=0, whole=0, rest=0)


@dataclass(frozen=True)
class Purge:
    """Remove all messages, or those that match a filter; optionally only below a sequence, or all except the newest."""

    subject: str | None = None
    """A filter; None: every subject."""
    seq: int | None = None
    """Only messages below it; without a filter, it is also a lower bound of the next sequence afterwards."""
    keep: int | None = None
    """The number of highest sequences to keep; never together with `seq`."""
    erase: ClassVar[bool] = False
    """False: purged messages can be restored."""

    @property
    def rule(self) -> str:
        """The rule by which the request removes."""
        return PURGE

    @property
    def wording(self) -> str:
        """The purge in a few words."""
        of = f"purge of {self.subject}" if self.subject else "purge"
        if self.seq is not None:
            return f"{of}, below sequence {self.seq:,}"
        return of if self.keep is None else f"{of}, all but the newest {self.keep:,}"


@dataclass(frozen=True)
class Delete:
    """Remove single messages."""

    seqs: tuple[int, ...]
    """Ascending, each once."""
    erase: bool = False
    """Also delete, immediately, every file that still contains them: this cannot be undone."""

    @property
    def rule(self) -> str:
        """The rule by which the request removes."""
        return DELETE

    @property
    def wording(self) -> str:
        """The deletion in a few words."""
        return "delete, with erasure" if self.erase else "delete"


@dataclass(frozen=True)
class Drop:
    """Remove a stream or topic with all its messages; its first write afterwards begins another table."""

    erase: ClassVar[bool] = False
    """False: the stream can be restored."""

    @property
    def rule(self) -> str:
        """The rule by which the request removes."""
        return DROP

    @property
    def wording(self) -> str:
        """The request in a few words."""
        return "drop"


MessageRequest = Purge | Delete | PurgeDeletes
"""A request to a stream."""
Request = MessageRequest | DeleteSegments | Drop
"""A request to a stream, or to a topic."""


def purge_request(
    subject: str | None = None, seq: int | None = None, keep: int | None = None
) -> Purge:
    """Make the request for a purge; 0 and the filter `>` mean no restriction (NATS STREAM.PURGE).

    Raises:
        UsageError: a number is out of range, the filter is invalid, or `seq` and `keep` are both given.
    """
    for name, number in (("seq", seq), ("keep", keep)):
        if number is not None:
            _check_range(name, number)
    if seq and keep:
        raise UsageError(
            f"purge: seq {seq} and keep {keep} exclude each other (bad request, error code 10003): give the sequence "
            "below which messages go, or how many of the newest stay"
        )
    if subject and not is_valid_filter(subject):
        raise UsageError(
            f"purge: {subject!r} is no subject filter, so nothing would match it: tokens are separated by single dots "
            "and have no spaces, and > stands last only"
        )
    return Purge(subject if subject not in {"", ">"} else None, seq or None, keep or None)


def delete_request(seqs: Iterable[int], *, erase: bool = False) -> Delete:
    """Make the request to delete these sequences.

    Raises:
        UsageError: no sequence is named, or one is out of range.
    """
    wanted = tuple(sorted(set(seqs)))
    for seq in wanted:
        _check_range("sequence", seq)
    if not wanted:
        raise UsageError("delete: no message is named: give one sequence or more")
    return Delete(wanted, erase)


def _check_range(name: str, number: int) -> None:
    if not 0 <= number < NEVER:
        raise UsageError(
            f"{name} {number} is out of range: give a whole number from 0 to {NEVER - 1}"
        )


def as_json(request: Request) -> dict[str, Any]:
    """A request as JSON values."""
    return {"rule": request.rule} | asdict(request)


def from_json(values: Mapping[str, Any]) -> Request:
    """The request with these `as_json` values."""
    given = {name: value for name, value in values.items() if name != "rule"}
    if "older_than_ns" in given:
        return PurgeDeletes(**given)
    if values["rule"] == PURGE:
        return Purge(**given)
    if values["rule"] == DROP:
        return Drop()
    if values["rule"] == DELETE_SEGMENTS:
        return DeleteSegments(**given)
    return Delete(tuple(given["seqs"]), given["erase"])


@dataclass(frozen=True)
class Meant:
    """A request's question to the rows of one span."""

    span: int
    rule: str
    subject: str | None = None
    """Only subjects that match this filter."""
    below: int | None = None
    """Only sequences below this one."""
    lowest: int | None = None
    """Only this number of the lowest messages that meet the other conditions."""
    seqs: tuple[int, ...] | None = None
    """Only these sequences."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns needed to answer."""
        return ("seq", "size") if self.subject is None else ("seq", "size", "subject")


@dataclass(frozen=True)
class Removal:
    """A request, decided per span from metadata if possible."""

    spans: Spans
    request: MessageRequest
    whole: Array
    """A mask of spans removed completely by metadata."""

    @property
    def by_rule(self) -> Array:
        """Messages that each rule removes from each completely removed span; shape (spans, rules)."""
        counts = np.zeros((len(self.spans), len(RULES)), dtype=np.int64)
        counts[self.whole, RULES.index(self.request.rule)] = self.spans.messages[self.whole]
        return counts


@dataclass(frozen=True)
class NamedRemoval(Removal):
    """A request for named messages."""

    request: Purge | Delete
    ask: Array
    """A mask of spans that need their rows."""
    cut: HeadCut = _NOTHING_KEPT
    """The extent of a purge that keeps the newest messages, counted in matching messages."""

    def questions(self) -> list[Meant]:
        """The questions to the rows of the undecided spans."""
        return [self._question(int(span)) for span in np.flatnonzero(self.ask)]

    def _question(self, span: int) -> Meant:
        request = self.request
        if isinstance(request, Delete):
            first = bisect_left(request.seqs, self.spans.min_seq[span])
            end = bisect_right(request.seqs, self.spans.max_seq[span])
            return Meant(span, request.rule, seqs=request.seqs[first:end])
        lowest = self.cut.rest if self.cut.rest and span == self.cut.whole else None
        return Meant(span, request.rule, request.subject, request.seq, lowest)


def matching(counts: pa.Table, span_of_file: Array, spans: int, subject: str) -> Array:
    """Count the messages of each span on subjects that match a filter, from subject digests.

    Args:
        counts: `file`, a row number of `span_of_file`, `subject` and `messages`.
        span_of_file: the span of each file.
        spans: the number of spans.
        subject: the filter.
    """
    matches = counts.filter(matching_mask(counts["subject"], (subject,)))
    messages = np.zeros(spans, dtype=np.int64)
    np.add.at(messages, span_of_file[matches["file"].to_numpy()], matches["messages"].to_numpy())
    return messages


def purge(spans: Spans, request: Purge, matched: Array) -> NamedRemoval:
    """Decide a purge from metadata, as far as possible (NATS STREAM.PURGE).

    Args:
        spans: the stream.
        request: the purge.
        matched: the messages of each span that match the request's filter.
    """
    cut = _NOTHING_KEPT if request.keep is None else head_cut(request.keep, matched)
    some = whole = matched > 0
    if request.keep is not None:
        numbers = np.arange(len(spans))
        whole = some & (numbers < cut.whole)
        some = whole | (some & (numbers == cut.whole) & (cut.rest > 0))
    if request.seq is not None:
        whole = some & (spans.max_seq < request.seq)
        some = some & (spans.min_seq < request.seq)
    whole = whole & (matched == spans.messages)
    return NamedRemoval(spans, request, whole, some & ~whole, cut)


def delete(spans: Spans, request: Delete) -> NamedRemoval:
    """Find the spans that may have the messages to delete (NATS STREAM.MSG.DELETE)."""
    wanted = np.array(request.seqs, dtype=np.int64)
    before = np.searchsorted(wanted, spans.min_seq, side="left")
    until = np.searchsorted(wanted, spans.max_seq, side="right")
    return NamedRemoval(spans, request, np.zeros(len(spans), dtype=bool), until > before)


def answer_request(span: SpanRows, question: Meant) -> Answer:
    """Answer for one span with the rows selected by a request."""
    seqs = span.rows["seq"].to_numpy()
    meant = np.ones(len(seqs), dtype=bool)
    if question.subject is not None:
        meant &= matching_mask(span.rows["subject"], (question.subject,)).to_numpy()
    if question.below is not None:
        meant &= seqs < question.below
    if question.seqs is not None:
        meant &= np.isin(seqs, np.array(question.seqs, dtype=np.int64))
    if question.lowest is not None:
        meant &= np.cumsum(meant) <= question.lowest
    verdicts = np.where(meant, RULES.index(question.rule), STAYS).astype(np.int8)
    return Answer(question.span, removed_ranges(span, verdicts), None, span.read)


def absent(request: Delete, removed: pa.Table) -> tuple[int, ...]:
    """The sequences to delete that no answer has; `removed` has shape `REMOVED_RANGES`."""
    wanted = np.array(request.seqs, dtype=np.int64)
    first, last = (np.sort(removed[name].to_numpy()) for name in ("first_seq", "last_seq"))
    at = np.searchsorted(first, wanted, side="right") - 1
    there = (at >= 0) & (wanted <= np.append(last, 0)[np.maximum(at, 0)])
    return tuple(wanted[~there].tolist())


def moved(request: MessageRequest, next_seq: int) -> tuple[int, int] | None:
    """The next sequence before and after a purge that exceeds it (NATS STREAM.PURGE); None: it is unchanged.

    Args:
        request: the purge, or a deletion.
        next_seq: the next sequence to assign.
    """
    if not isinstance(request, Purge) or request.subject is not None or request.seq is None:
        return None
    return (next_seq, request.seq) if request.seq > next_seq else None
