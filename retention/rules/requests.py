"""Requested removals, and the messages that they select (NATS STREAM.PURGE, STREAM.MSG.DELETE, `Nats-Rollup`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.json_object import JsonObject
from retention.core.spans import Array, Spans
from retention.core.subjects import is_valid_filter, matching_mask
from retention.errors import UsageError
from retention.rules import DELETE, DELETE_SEGMENTS, DROP, PURGE, ROLLUP
from retention.rules.erase import Erase
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.jetstream.head_trim import HeadCut, head_cut
from retention.rules.purge_deletes import PurgeDeletes
from retention.rules.rule import RowRule
from retention.rules.verdicts import Verdicts
from retention.schemas.deadlines import NEVER

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
    rule: ClassVar[str] = PURGE
    erase: ClassVar[bool] = False
    """False: purged messages can be restored."""

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
    rule: ClassVar[str] = DELETE
    erase: bool = False
    """Whether an earlier release also deleted every file that contained them; `Erase` replaces that."""

    @property
    def wording(self) -> str:
        """The deletion in a few words."""
        return "delete, with erasure" if self.erase else "delete"


@dataclass(frozen=True)
class Drop:
    """Remove a stream or topic with all its messages; its first write afterwards begins another table."""

    rule: ClassVar[str] = DROP
    erase: ClassVar[bool] = False
    """False: the stream can be restored."""
    wording: ClassVar[str] = "drop"


@dataclass(frozen=True)
class Rollup:
    """Remove the messages that published messages replace: on some subjects, or all of them."""

    subjects: tuple[str, ...] = ()
    everything: bool = False
    rule: ClassVar[str] = ROLLUP
    erase: ClassVar[bool] = False
    """False: replaced messages can be restored."""
    wording: ClassVar[str] = "roll-up"


MessageRequest = Purge | Delete | PurgeDeletes
"""A request to a stream."""
Request = MessageRequest | DeleteSegments | Drop | Rollup | Erase
"""A request to a stream, or to a topic, or of published messages."""


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


def delete_request(seqs: Iterable[int]) -> Delete:
    """Make the request to delete these sequences.

    Raises:
        UsageError: no sequence is named, or one is out of range.
    """
    wanted = tuple(sorted(set(seqs)))
    for seq in wanted:
        _check_range("sequence", seq)
    if not wanted:
        raise UsageError("delete: no message is named: give one sequence or more")
    return Delete(wanted)


def _check_range(name: str, number: int) -> None:
    if not 0 <= number < NEVER:
        raise UsageError(
            f"{name} {number} is out of range: give a whole number from 0 to {NEVER - 1}"
        )


def as_json(request: Request) -> JsonObject:
    """A request as JSON values."""
    if isinstance(request, Erase):
        return request.as_json()
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
    if values["rule"] == ROLLUP:
        return Rollup(tuple(given["subjects"]), given["everything"])
    if values["rule"] == DELETE_SEGMENTS:
        return DeleteSegments(**given)
    return Delete(tuple(given["seqs"]), given["erase"])


@dataclass(frozen=True)
class NamedRows(RowRule):
    """The rows of one span that meet every condition."""

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
        return () if self.subject is None else ("subject",)

    def takes(self, rows: pa.Table) -> Array:
        """A mask of these rows."""
        seqs = rows["seq"].to_numpy()
        meant = np.ones(len(seqs), dtype=bool)
        if self.subject is not None:
            meant &= matching_mask(rows["subject"], (self.subject,)).to_numpy()
        if self.below is not None:
            meant &= seqs < self.below
        if self.seqs is not None:
            meant &= np.isin(seqs, np.array(self.seqs, dtype=np.int64))
        if self.lowest is not None:
            meant &= np.cumsum(meant) <= self.lowest
        return meant


@dataclass(frozen=True)
class OnSubjects(RowRule):
    """The rows of one span on some subjects, which a roll-up replaces."""

    subjects: pa.Array
    rule = ROLLUP
    columns = ("subject",)

    def takes(self, rows: pa.Table) -> Array:
        """A mask of these rows."""
        return np.asarray(pc.is_in(rows["subject"], value_set=self.subjects))


def counted_in(counts: pa.Table, matches: pa.Array, span_of_file: Array, spans: int) -> Array:
    """Count the messages of each span on some subjects, from subject digests.

    Args:
        counts: `file`, a row number of `span_of_file`, `subject` and `messages`.
        matches: a mask of the rows of `counts` to sum.
        span_of_file: the span of each file.
        spans: the number of spans.
    """
    matching = counts.filter(matches)
    messages = np.zeros(spans, dtype=np.int64)
    np.add.at(messages, span_of_file[matching["file"].to_numpy()], matching["messages"].to_numpy())
    return messages


def purge(spans: Spans, request: Purge, matched: Array) -> Verdicts:
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
    rows = NamedRows(request.rule, request.subject, request.seq)
    at_cut = replace(rows, lowest=cut.rest or None)
    parts = {
        span: at_cut if span == cut.whole else rows
        for span in np.flatnonzero(some & ~whole).tolist()
    }
    return Verdicts(request.rule, whole, parts)


def delete(spans: Spans, request: Delete) -> Verdicts:
    """Find the spans that may have the messages to delete (NATS STREAM.MSG.DELETE)."""
    wanted = np.array(request.seqs, dtype=np.int64)
    before = np.searchsorted(wanted, spans.min_seq, side="left")
    until = np.searchsorted(wanted, spans.max_seq, side="right")
    parts = {
        span: NamedRows(request.rule, seqs=request.seqs[before[span] : until[span]])
        for span in np.flatnonzero(until > before).tolist()
    }
    return Verdicts(request.rule, np.zeros(len(spans), dtype=bool), parts)


def roll_up(spans: Spans, request: Rollup, matched: Array) -> Verdicts:
    """Decide a roll-up from metadata, as far as possible.

    Args:
        spans: the stream.
        request: the roll-up.
        matched: the messages of each span on its subjects.
    """
    rows = OnSubjects(pa.array(request.subjects, pa.string()))
    whole = (matched == spans.messages) | request.everything
    parts = np.flatnonzero((matched > 0) & ~whole)
    return Verdicts(request.rule, whole, dict.fromkeys(parts.tolist(), rows))


def absent(request: Delete, answered: pa.Table) -> tuple[int, ...]:
    """The sequences to delete that no answer has.

    Args:
        request: the deletion.
        answered: `first_seq` and `last_seq` of the ranges that answers remove or keep.
    """
    wanted = np.array(request.seqs, dtype=np.int64)
    first, last = (np.sort(answered[name].to_numpy()) for name in ("first_seq", "last_seq"))
    at = np.searchsorted(first, wanted, side="right") - 1
    there = (at >= 0) & (wanted <= np.append(last, 0)[np.maximum(at, 0)])
    return tuple(wanted[~there].tolist())


def moved(request: Request, next_seq: int) -> tuple[int, int] | None:
    """The next sequence before and after a purge that exceeds it (NATS STREAM.PURGE); None: it is unchanged.

    Args:
        request: the purge, or another request.
        next_seq: the next sequence to assign.
    """
    if not isinstance(request, Purge) or request.subject is not None or request.seq is None:
        return None
    return (next_seq, request.seq) if request.seq > next_seq else None
