"""Row verdicts: which rule, if any, lets each message of one span go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import ReadCount
from retention.core.spans import Array
from retention.rules import MAX_AGE, MAX_BYTES, MAX_MSGS, MAX_MSGS_PER_SUBJECT, MSG_TTL, RULES
from retention.rules.jetstream.max_age import expires, first_young
from retention.rules.jetstream.max_msgs_bytes import lowest_until
from retention.rules.jetstream.max_msgs_per_subject import Apart, Lasts, Share, surplus_rows
from retention.rules.jetstream.msg_ttl import passed
from schemas.messages import RULE_COLUMNS
from schemas.plan import HELD_RANGES, REMOVED_RANGES

if TYPE_CHECKING:
    from retention.rules.jetstream.protection import Hold

STAYS = -1
"""The verdict on a message that no rule lets go; any other verdict is an index into `RULES`, or `EITHER`."""

EITHER = len(RULES)
"""MaxAge takes the message if its scan comes to this span, and its own deadline if not."""


@dataclass(frozen=True)
class Question:
    """What the rules ask of the rows of one span, the rest of the stream being known."""

    span: int
    lose_messages: int = 0
    """MaxMsgs: the lowest so many go."""
    lose_bytes: int = 0
    """MaxBytes: the lowest go until so many bytes are gone."""
    surplus: Share | Lasts | Apart | None = None
    """MaxMsgsPerSubject: what the limit lets stay; fetched before rows are judged."""
    cutoff_ns: int | None = None
    """MaxAge: the youngest instant that expires; None: the scan does not come here."""
    due_ns: int | None = None
    """Per-message TTL: the latest deadline that has passed; None: TTLs are not looked at."""
    in_full: bool = False
    """All narrow columns are looked at, also those that verdicts do without."""
    hold: Hold | None = None
    """What stays although rules would take it; None: nothing does."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it takes to answer."""
        if self.in_full:
            return RULE_COLUMNS
        held = self.hold is not None
        by_subject = ("subject",) if isinstance(self.surplus, Share) or held else ()
        by_age = ("ts_ns",) if self.cutoff_ns is not None or held else ()
        by_deadline = () if self.cutoff_ns is None and self.due_ns is None else ("deadline_ns",)
        return ("seq", "size", *by_subject, *by_age, *by_deadline)


@dataclass(frozen=True)
class SpanRows:
    """The rows of one span."""

    rows: pa.Table
    """The columns of the question, ascending by `seq`."""
    file_of_row: Array
    """For each row, its file's row number in the inventory."""
    read: ReadCount
    """What reading them cost."""


@dataclass(frozen=True)
class Answer:
    """What the rows of one span told."""

    span: int
    removed: pa.Table
    """Shape `REMOVED_RANGES`, `file` being a row number of the inventory."""
    stop_seq: int | None
    """The message at which the age scan ends, if it ends in this span."""
    read: ReadCount
    held: pa.Table = field(default_factory=HELD_RANGES.empty_table)
    """What stays although rules would take it, and for whom; shape `HELD_RANGES`."""


def answer(span: SpanRows, question: Question) -> Answer:
    """What the rows of one span say to a question."""
    verdicts, until = judge(span.rows, question)
    stop_seq = None if until is None else span.rows["seq"][until].as_py()
    return Answer(question.span, removed_ranges(span, verdicts), stop_seq, span.read)


def removed_ranges(span: SpanRows, verdicts: Array) -> pa.Table:
    """The removed sequences of a span as ranges, file by file; shape `REMOVED_RANGES`."""
    gone = np.flatnonzero(verdicts != STAYS)
    gone = gone[np.argsort(span.file_of_row[gone], kind="stable")]
    return _ranges(span.rows, verdicts, gone, span.file_of_row[gone])


def judge(rows: pa.Table, question: Question) -> tuple[Array, int | None]:
    """Give each row its verdict, and the row number at which the age scan ends (None: it goes on).

    Args:
        rows: the columns of the question, of all files of the span, ascending by `seq`.
        question: what to decide.
    """
    verdicts = np.full(rows.num_rows, STAYS, dtype=np.int8)
    by_count = min(question.lose_messages, rows.num_rows)
    by_bytes = lowest_until(question.lose_bytes, rows["size"].to_numpy())
    verdicts[:by_count] = RULES.index(MAX_MSGS)
    verdicts[by_count:by_bytes] = RULES.index(MAX_BYTES)
    if question.surplus is not None:
        beyond = surplus_rows(rows, question.surplus) & (verdicts == STAYS)
        verdicts[beyond] = RULES.index(MAX_MSGS_PER_SUBJECT)
    left, until = verdicts == STAYS, None
    if question.cutoff_ns is None and question.due_ns is None:
        return verdicts, None
    deadlines = pc.fill_null(rows["deadline_ns"], 0).to_numpy()
    if question.cutoff_ns is not None:
        until = first_young(rows["ts_ns"].to_numpy(), left, question.cutoff_ns)
        verdicts[left & expires(deadlines, until)] = RULES.index(MAX_AGE)
    if question.due_ns is not None:
        has_deadline = pc.is_valid(rows["deadline_ns"]).to_numpy()
        due = left & passed(deadlines, has_deadline, question.due_ns)
        verdicts[due] = np.where(verdicts[due] == STAYS, RULES.index(MSG_TTL), EITHER)
    return verdicts, until


def settled(verdicts: Array, *, reached: bool) -> Array:
    """Verdicts once it is known whether the age scan came to the span: indexes into `RULES`, or `STAYS`."""
    aged, due = RULES.index(MAX_AGE), RULES.index(MSG_TTL)
    if reached:
        return np.where(verdicts == EITHER, aged, verdicts)
    return np.select([verdicts == EITHER, verdicts == aged], [due, STAYS], verdicts)


def ranges_of(rows: pa.Table, verdicts: Array) -> pa.Table:
    """The removed sequences of one file as ranges.

    Args:
        rows: `seq` and `size`, ascending by `seq`.
        verdicts: one per row.

    Returns:
        `rule` int8, `first_seq`, `last_seq` (inclusive; every sequence between them is removed by that rule),
        `messages`, `bytes`, ascending.
    """
    gone = np.flatnonzero(verdicts != STAYS)
    return _ranges(rows, verdicts, gone, np.zeros_like(gone)).drop_columns("file")


def _ranges(rows: pa.Table, verdicts: Array, gone: Array, files: Array) -> pa.Table:
    """The ranges of the rows `gone`, each of which is in one of `files`; shape `REMOVED_RANGES`."""
    seqs, sizes = (rows[name].to_numpy()[gone] for name in ("seq", "size"))
    rules = verdicts[gone]
    begins = np.ones(len(gone), dtype=bool)
    begins[1:] = (np.diff(seqs) != 1) | (np.diff(rules) != 0) | (np.diff(files) != 0)
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(gone)) - 1 if len(gone) else starts
    ranges = {
        "file": files[starts],
        "rule": rules[starts],
        "first_seq": seqs[starts],
        "last_seq": seqs[ends],
        "messages": ends - starts + 1,
        "bytes": np.add.reduceat(sizes, starts) if len(gone) else sizes,
    }
    return pa.table(ranges, schema=REMOVED_RANGES)
