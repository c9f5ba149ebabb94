"""Holds: messages that limits would remove, kept while consumers need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.read_count import ReadCount
from retention.core.spans import Array, Spans, joined
from retention.rules.jetstream.head_trim import head_cut, lowest_until
from retention.rules.jetstream.protection import Protection
from retention.rules.row_verdicts import ANYBODY, STAYS, Question, SpanRows, judge
from retention.rules.row_verdicts import settled as settled_rules
from retention.rules.veto import any_kept
from retention.schemas.plan import HELD_RANGES, RULE_NUMBER


@dataclass(frozen=True)
class Sizes:
    """The held messages of one span."""

    held: pa.Table
    """`seq` and `size`."""
    read: ReadCount


def protected_sizes(span: SpanRows, question: Question, *, reached: bool) -> Sizes:
    """Find the held messages of one span, with their sizes.

    Args:
        span: its rows.
        question: the question of the rules and the protection.
        reached: whether the scan reaches the span.
    """
    verdicts, _ = judge(span.rows, question)
    taken = settled_rules(verdicts, reached=reached) != STAYS
    held = taken & any_kept(question.vetoes, span.rows)
    return Sizes(span.rows.select(["seq", "size"]).filter(pa.array(held)), span.read)


def settled(held: pa.Table, *, reached: bool) -> pa.Table:
    """Held ranges, given whether the age scan reached their span; shape `HELD_RANGES`."""
    rules = settled_rules(held["rule"].to_numpy(), reached=reached)
    at = held.schema.get_field_index("rule")
    ranges = held.set_column(at, HELD_RANGES.field("rule"), pa.array(rules, RULE_NUMBER))
    return ranges.filter(pa.array(rules != STAYS))


def protected_whole(spans: Spans, by_rule: Array, hold: Protection, whole: Array) -> pa.Table:
    """The held ranges of spans held by metadata; one rule would remove each of them.

    Args:
        spans: the stream.
        by_rule: messages that each rule would remove from them; shape (spans, rules).
        hold: the protection.
        whole: a mask of the completely held spans.

    Returns:
        Shape `HELD_RANGES`; a range may include sequences without a message.
    """
    chosen = np.flatnonzero(whole)
    parts = [HELD_RANGES.empty_table()]
    everything = np.ones(len(spans), dtype=bool)
    for consumer, needed in ((ANYBODY, everything), *enumerate(hold.all_for(spans))):
        at = chosen[needed[chosen]]
        columns = {
            "consumer": np.full(len(at), consumer),
            "rule": np.argmax(by_rule[at], axis=1),
            "first_seq": spans.min_seq[at],
            "last_seq": spans.max_seq[at],
            "messages": spans.messages[at],
            "bytes": spans.bytes[at],
            "oldest_ts_ns": spans.min_ts_ns[at],
        }
        parts.append(pa.table(columns).cast(HELD_RANGES))
    return pa.concat_tables(parts)


@dataclass(frozen=True)
class ProtectionBudget:
    """The point at which the newest held messages use up the bytes that may be held."""

    spans: Array
    """The spans at that point: several if their sequences interleave."""
    rest: int
    """The bytes of their lowest held messages beyond that point."""
    above: int
    """The sequence from which all held messages have room; if `rest` is 0, no message below it has."""


def budget_of(spans: Spans, held: pa.Table, max_bytes: int) -> ProtectionBudget | None:
    """Find the lowest held message with room; None: all have room.

    Args:
        spans: the stream.
        held: the held ranges, shape `HELD_RANGES`.
        max_bytes: the maximum number of held bytes.
    """
    apart = joined(spans)
    group = np.searchsorted(apart.first_file, spans.first_file[:-1], side="right") - 1
    amounts = np.zeros(len(apart), dtype=np.int64)
    once = held.filter(pc.equal(held["consumer"], ANYBODY))
    of_range = np.searchsorted(apart.min_seq, once["first_seq"].to_numpy(), side="right") - 1
    np.add.at(amounts, of_range, once["bytes"].to_numpy())
    cut = head_cut(max_bytes, amounts)
    if not cut.whole and not cut.rest:
        return None
    return ProtectionBudget(
        spans=np.flatnonzero(group == cut.whole) if cut.rest else np.zeros(0, np.int64),
        rest=cut.rest,
        above=int(apart.min_seq[cut.whole]),
    )


def first_protected(budget: ProtectionBudget, held: Sequence[pa.Table]) -> int:
    """The lowest sequence of a held message with room.

    Args:
        budget: the point at which room ends.
        held: the held messages of its spans; `seq` and `size`.
    """
    if not held:
        return budget.above
    rows = pa.concat_tables(held).sort_by("seq")
    lost = lowest_until(budget.rest, rows["size"].to_numpy())
    return int(rows["seq"].to_numpy()[lost - 1]) + 1
