"""Row verdicts: which rule, if any, lets each message of one span go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.rules import MAX_AGE, MAX_BYTES, MAX_MSGS, MAX_MSGS_PER_SUBJECT, RULES
from retention.rules.expiry import expires, first_young
from retention.rules.limits import lowest_until
from retention.rules.per_subject import Apart, Lasts, Share, surplus_rows
from retention.rules.spans import Array
from retention.segments import ReadCount

STAYS = -1
"""The verdict on a message that no rule lets go; any other verdict is an index into `RULES`."""


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

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it takes to answer."""
        by_subject = ("subject",) if isinstance(self.surplus, Share) else ()
        by_age = () if self.cutoff_ns is None else ("ts_ns", "deadline_ns")
        return ("seq", "size", *by_subject, *by_age)


@dataclass(frozen=True)
class Answer:
    """What the rows of one span told."""

    span: int
    removed: pa.Table
    """Shape `REMOVED_RANGES`, `file` being a row number of the inventory."""
    stop_seq: int | None
    """The message at which the age scan ends, if it ends in this span."""
    read: ReadCount


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
    if question.cutoff_ns is None:
        return verdicts, None
    left = verdicts == STAYS
    until = first_young(rows["ts_ns"].to_numpy(), left, question.cutoff_ns)
    deadlines = pc.fill_null(rows["deadline_ns"], 0).to_numpy()
    verdicts[left & expires(deadlines, until)] = RULES.index(MAX_AGE)
    return verdicts, until


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
    seqs, rules = rows["seq"].to_numpy()[gone], verdicts[gone]
    sizes = rows["size"].to_numpy()[gone]
    begins = np.ones(len(gone), dtype=bool)
    begins[1:] = (np.diff(seqs) != 1) | (np.diff(rules) != 0)
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(gone)) - 1 if len(gone) else starts
    return pa.table(
        {
            "rule": pa.array(rules[starts], pa.int8()),
            "first_seq": pa.array(seqs[starts], pa.int64()),
            "last_seq": pa.array(seqs[ends], pa.int64()),
            "messages": pa.array(ends - starts + 1, pa.int64()),
            "bytes": pa.array(np.add.reduceat(sizes, starts) if len(gone) else sizes, pa.int64()),
        }
    )
