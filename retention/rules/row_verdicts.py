"""Row verdicts: the rule, if any, that removes each message of one span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from retention.core.read_count import ReadCount
from retention.core.spans import Array
from retention.rules import RULES
from retention.rules.rule import RowRule
from retention.rules.veto import Veto, rows_kept
from retention.schemas.empty import empty_table
from retention.schemas.messages import RULE_COLUMNS
from retention.schemas.plan import HELD_RANGES, REMOVED_RANGES, RULE_NUMBER

STAYS = -1
"""The verdict on a message kept by every rule; any other verdict is an index into `RULES`, or provisional."""

_RULES_AT_MOST = len(RULES) + 1

ANYBODY = -1
"""The entry for all consumers, in which a message held for several counts once."""


def provisional(scanning: int, otherwise: int) -> int:
    """The verdict on a message that a rule removes only if its scan reaches the span.

    Args:
        scanning: the rule's index into `RULES`.
        otherwise: the rule that removes it otherwise, or `STAYS`.
    """
    return _RULES_AT_MOST * (scanning + 1) + otherwise + 1


def settled(verdicts: Array, *, reached: bool) -> Array:
    """Final verdicts, given whether the scan reached the span: indexes into `RULES`, or `STAYS`."""
    scanning, otherwise = np.divmod(verdicts, _RULES_AT_MOST)
    final = (scanning if reached else otherwise) - 1
    return np.where(verdicts < _RULES_AT_MOST, verdicts, final).astype(verdicts.dtype)


@dataclass(frozen=True)
class Question:
    """The rules' question to the rows of one span, given the rest of the stream."""

    span: int
    parts: tuple[RowRule, ...] = ()
    """Each rule's part of the question, in the order of the pass."""
    in_full: bool = False
    """Whether all narrow columns are needed, including those not used by verdicts."""
    vetoes: tuple[Veto, ...] = ()
    """The vetoes that may keep messages from the rules."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns needed to answer."""
        if self.in_full:
            return RULE_COLUMNS
        wanted = {"seq", "size", *(name for part in self.parts for name in part.columns)}
        if self.vetoes:
            wanted |= {"ts_ns", *(name for veto in self.vetoes for name in veto.columns)}
        return tuple(name for name in RULE_COLUMNS if name in wanted)

    @property
    def before_expiry(self) -> Question:
        """The question of the rules before expiry."""
        return replace(self, parts=tuple(part for part in self.parts if not part.expires))


@dataclass(frozen=True)
class SpanRows:
    """The rows of one span."""

    rows: pa.Table
    """The columns of the question, ascending by `seq`."""
    file_of_row: Array
    """For each row, its file's row number in the inventory."""
    read: ReadCount
    """The files and bytes read for them."""


@dataclass(frozen=True)
class StoredRanges:
    """Ranges of one span, stored in a file because they are many."""

    place: str
    """An Arrow file of shape `REMOVED_RANGES`."""
    counts: pa.Table
    """Sums of removals by file and verdict: `file`, `rule`, `messages`, `bytes`, the highest `last_seq`."""
    owner: object = field(default=None, compare=False)
    """The scratch directory; deleted when the last reference to it ends."""

    def __getstate__(self) -> dict[str, object]:
        """The fields without the owner, which belongs to one process."""
        return vars(self) | {"owner": None}


@dataclass(frozen=True)
class Answer:
    """The answer of the rows of one span."""

    span: int
    removed: pa.Table
    """Shape `REMOVED_RANGES`; `file` is a row number of the inventory. Empty if the ranges are stored."""
    stop_seq: int | None
    """The message at which the scan ends, if it ends in this span."""
    read: ReadCount
    held: pa.Table = field(default_factory=partial(empty_table, HELD_RANGES))
    """Ranges that vetoes keep from rules; shape `HELD_RANGES`, with the number of the reason as `consumer`."""
    stop_ts_ns: int | None = None
    """The time of that message; None also if rows were not read."""
    skipped: int | None = None
    """Messages kept because the scan ends before them in this span; None: no rows were read."""
    stored: StoredRanges | None = None
    """The ranges to remove, if they are so many that they are stored in a file."""

    @property
    def counts(self) -> pa.Table:
        """Rows with `file`, `rule` (a verdict), `messages` and `bytes`, which add up to the removed messages."""
        return self.removed if self.stored is None else self.stored.counts


def answer_question(span: SpanRows, question: Question) -> Answer:
    """Answer a question from the rows of one span, without the rows that vetoes keep."""
    verdicts, until = judge(span.rows, question)
    covers = rows_kept(question.vetoes, span.rows)
    is_kept = covers.any(axis=0)
    unended = Answer(
        span=question.span,
        removed=removed_ranges(span, np.where(is_kept, STAYS, verdicts)),
        stop_seq=None,
        read=span.read,
        held=_held_ranges(span.rows, verdicts, covers),
    )
    return scan_end(unended, span.rows, question, (verdicts == STAYS) & ~is_kept, until)


def _held_ranges(rows: pa.Table, verdicts: Array, covers: Array) -> pa.Table:
    """The kept ranges of a span's rows, for all reasons together and for each; shape `HELD_RANGES`."""
    parts = [empty_table(HELD_RANGES)]
    reasons = ((ANYBODY, covers.any(axis=0)), *enumerate(covers)) if len(covers) else ()
    for reason, covered in reasons:
        held = np.where(covered, verdicts, STAYS)
        ranges = ranges_of(rows, held)
        times = rows["ts_ns"].to_numpy()[held != STAYS]
        starts = np.cumsum(ranges["messages"].to_numpy()) - ranges["messages"].to_numpy()
        oldest = np.minimum.reduceat(times, starts) if len(starts) else times
        numbers = pa.array(np.full(ranges.num_rows, reason))
        part = ranges.add_column(0, "consumer", numbers).append_column("oldest_ts_ns", [oldest])
        parts.append(part.cast(HELD_RANGES))
    return pa.concat_tables(parts)


def stop_of(answers: Sequence[Answer]) -> int | None:
    """The first span with rows that end the scan; None if no rows end it."""
    stops = [answer.span for answer in answers if answer.stop_seq is not None]
    return min(stops, default=None)


def scan_end(
    unended: Answer, rows: pa.Table, question: Question, stays: Array, until: int | None
) -> Answer:
    """Add to an answer the end of the scan, and the number of messages kept after it.

    Args:
        unended: the answer without these.
        rows: the rows of the span.
        question: the question that they answer.
        stays: a mask of the rows that no rule removes and nothing protects.
        until: the row number at which the scan ends; None: not in this span.
    """
    scanning = [part for part in question.parts if part.stops(rows) is not None]
    if until is None:
        return replace(unended, skipped=0) if scanning else unended
    takes = [part.takes(rows) for part in scanning]
    behind = stays & (np.arange(rows.num_rows) > until)
    return replace(
        unended,
        stop_seq=rows["seq"][until].as_py(),
        stop_ts_ns=rows["ts_ns"][until].as_py(),
        skipped=int(np.count_nonzero(np.any(takes, axis=0) & behind)),
    )


def removed_ranges(span: SpanRows, verdicts: Array) -> pa.Table:
    """The removed sequences of a span as ranges, file by file; shape `REMOVED_RANGES`."""
    rows, files = span.rows, span.file_of_row
    if (files[1:] < files[:-1]).any():
        order = np.argsort(files, kind="stable")
        rows, verdicts, files = rows.take(pa.array(order)), verdicts[order], files[order]
    return _ranges(rows, verdicts, files)


def judge(rows: pa.Table, question: Question) -> tuple[Array, int | None]:
    """Give each row its verdict; also returns the row number at which the scan ends (None: it continues).

    A scan may end in an earlier span, depending on that span's rows. So its removals are
    provisional, and later rules see these rows as well:

        seq       1     2     3     4
        max_age   old   old   young old
        msg_ttl         due         due
        verdict   age   age,  -     ttl
                        else ttl

    Args:
        rows: the columns of the question, of all files of the span, ascending by `seq`.
        question: the question of the rules.
    """
    verdicts, until = np.full(rows.num_rows, STAYS, dtype=RULE_NUMBER.to_pandas_dtype()), None
    remaining = np.ones(rows.num_rows, dtype=bool)
    for part in question.parts:
        rule, takes, stops = RULES.index(part.rule), part.takes(rows) & remaining, part.stops(rows)
        if stops is None:
            verdict = rule
            remaining &= ~takes
        else:
            until = _first(stops & remaining)
            takes &= np.arange(len(takes)) < (len(takes) if until is None else until)
            verdict = provisional(rule, STAYS)
        # A sum suits provisional verdicts, too, and takes a tenth of the time of an assignment.
        verdicts += takes * verdicts.dtype.type(verdict - STAYS)
    return verdicts, until


def _first(mask: Array) -> int | None:
    numbers = np.flatnonzero(mask)
    return int(numbers[0]) if len(numbers) else None


def ranges_of(rows: pa.Table, verdicts: Array) -> pa.Table:
    """The removed sequences of one file as ranges.

    Args:
        rows: `seq` and `size`, ascending by `seq`.
        verdicts: one per row.

    Returns:
        `rule` int16, `first_seq`, `last_seq` (inclusive; every sequence between them is removed by that rule),
        `messages`, `bytes`, ascending.
    """
    return _ranges(rows, verdicts, np.zeros_like(verdicts)).drop_columns("file")


def _ranges(rows: pa.Table, verdicts: Array, files: Array) -> pa.Table:
    """The removed ranges of rows, file by file, with the file of each row in `files`; shape `REMOVED_RANGES`."""
    seqs, sizes = (rows[name].to_numpy() for name in ("seq", "size"))
    edges = np.ones(len(seqs) + 1, dtype=bool)
    edges[1:-1] = (seqs[1:] != seqs[:-1] + 1) | (files[1:] != files[:-1])
    edges[1:-1] |= verdicts[1:] != verdicts[:-1]
    goes = verdicts != STAYS
    starts, ends = np.flatnonzero(goes & edges[:-1]), np.flatnonzero(goes & edges[1:])
    through = np.cumsum(sizes)
    ranges = {
        "file": files[starts],
        "rule": verdicts[starts],
        "first_seq": seqs[starts],
        "last_seq": seqs[ends],
        "messages": ends - starts + 1,
        "bytes": through[ends] - through[starts] + sizes[starts],
    }
    return pa.table(ranges, schema=REMOVED_RANGES)
