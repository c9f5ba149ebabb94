"""Interest and work-queue retention on a stored stream: the release by consumers, from metadata, digests, then rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from retention.core.inventory import Inventory
from retention.core.neighbours import runs_within
from retention.core.policy import Unmatched
from retention.core.read_count import ReadCount
from retention.core.spans import Array, Spans, spans_of
from retention.datafile.row_stats import row_stats, seq_and_size_stats
from retention.datafile.subject_digest import MESSAGES_AT_ONCE, count_subjects
from retention.plan.remaining import (
    InventoryRow,
    KeptFromRelease,
    RemainingMessages,
    RemainingRow,
    StoredDigest,
    all_remaining,
)
from retention.plan.removed_ranges import RemovedRanges, ranges_of
from retention.planners.context import PlanningContext
from retention.planners.rows import StreamRows
from retention.rules import RULES
from retention.rules.jetstream.evaluate import ORDER
from retention.rules.jetstream.interest import Interest, Release, refined, release, released_rows
from retention.rules.row_verdicts import STAYS, SpanRows, StoredRanges, removed_ranges
from retention.rules.veto import Veto, rows_kept, spans_kept
from retention.schemas.empty import empty_table
from retention.schemas.files import FILE_STATS, RowSizes
from retention.schemas.messages import RULE_COLUMNS
from retention.schemas.plan import REMOVED_RANGES, RULE_NUMBER


@dataclass(frozen=True)
class UnneededQuestion:
    """A question to the rows of one span: which messages no consumer needs."""

    span: int
    interests: tuple[Interest, ...]
    unmatched: Unmatched
    rule: str
    in_full: bool
    """Whether limits need more of the remaining messages than their count and size."""
    vetoes: tuple[Veto, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns needed to answer."""
        if self.in_full or self.vetoes:
            return RULE_COLUMNS
        return ("seq", "subject", "size")


@dataclass(frozen=True)
class InterestAnswer:
    """The answer of one span's rows to an `UnneededQuestion`."""

    removed: pa.Table
    """Shape `REMOVED_RANGES`; `file` is a row number of the inventory. Empty if the ranges are stored."""
    left: Mapping[InventoryRow, RowSizes]
    """Partly kept file → statistics of its remaining messages: `RowStats`, if limits need them."""
    digests: Mapping[InventoryRow, pa.Table | StoredDigest]
    """Partly kept file → the subject digest of its remaining messages, if limits need it."""
    read: ReadCount
    span: int
    kept: pa.Table = field(default_factory=partial(empty_table, REMOVED_RANGES))
    """Ranges that no consumer needs and vetoes keep, shape `REMOVED_RANGES`."""
    by_reason: Array = field(default_factory=partial(np.zeros, 0, dtype=np.int64))
    """The number of these messages for each reason of the vetoes."""
    stored: StoredRanges | None = None
    """The ranges to remove, if they are so many that they are stored in a file."""

    @property
    def counts(self) -> pa.Table:
        """Rows with `file` and `messages`, which add up to the removed messages."""
        return self.removed if self.stored is None else self.stored.counts


def remaining_of(context: PlanningContext, rows: StreamRows) -> RemainingMessages:
    """The exact remaining messages after the release by consumers; all messages if the retention is `limits`.

    Raises:
        DamagedError: a file that had to be read is damaged.
    """
    inventory, policy = context.inventory, context.policy
    if policy.retention == "limits":
        return all_remaining(inventory)
    spans, interests = spans_of(inventory.files), context.consumers.interests
    decided = decide_release(context, spans, rows)
    in_full = any(rule.setting.of(policy) is not None for rule in ORDER if not rule.narrow)
    whole, some = spans_kept(context.all_vetoes, spans)
    ask = decided.ask | (decided.whole & some)
    questions = [
        UnneededQuestion(
            span=int(span),
            interests=tuple(
                interest.within(int(spans.min_seq[span]), int(spans.max_seq[span]))
                for interest in interests
            ),
            unmatched=policy.unmatched,
            rule=policy.retention,
            in_full=in_full,
            vetoes=tuple(veto.within(spans, int(span)) for veto in context.all_vetoes),
        )
        for span in np.flatnonzero(ask)
    ]
    answers = rows.of(all_remaining(inventory))(find_unneeded, spans, questions)
    released = decided.whole & ~ask
    of_file = spans.span_of_file
    remaining = _left(inventory, released[of_file], answers)
    by_hold = context.holds.kept_whole(spans, released & whole)
    return _without_kept(remaining, (released & whole)[of_file], answers, by_hold)


def decide_release(context: PlanningContext, spans: Spans, rows: StreamRows) -> Release:
    """Decide the release by consumers from metadata; subject digests are read only for undecided spans."""
    files_of, policy = context.inventory.files, context.policy
    interests = context.consumers.interests
    decided = release(spans, interests, policy.unmatched)
    if not any(interest.filters for interest in interests):
        return decided
    for files in _in_doubt(spans, decided.ask):
        counts = rows.subject_counts(files_of.take(pa.array(files)))
        numbers = pa.array(files[counts["file"].to_numpy()], pa.int64())
        counts = counts.set_column(0, "file", numbers)
        decided = refined(decided, spans, interests, policy.unmatched, counts)
    return decided


def find_unneeded(span: SpanRows, question: UnneededQuestion) -> InterestAnswer:
    """Find the rows of one span that no consumer needs, and the remaining messages of its files."""
    gone = released_rows(span.rows, question.interests, question.unmatched)
    covers = rows_kept(question.vetoes, span.rows)
    is_kept = covers.any(axis=0)
    rule = RULES.index(question.rule)
    removed, kept = (
        removed_ranges(span, np.where(mask, rule, STAYS).astype(RULE_NUMBER.to_pandas_dtype()))
        for mask in (gone & ~is_kept, gone & is_kept)
    )
    stats = row_stats if question.in_full else seq_and_size_stats
    left, digests = {}, {}
    for number in map(InventoryRow, np.unique(span.file_of_row[gone]).tolist()):
        rows = span.rows.filter(pa.array((span.file_of_row == number) & ~gone))
        if rows.num_rows:
            left[number] = stats(rows)
            if question.in_full:
                digests[number] = count_subjects(rows)
    by_reason = np.count_nonzero(covers & gone, axis=1)
    return InterestAnswer(removed, left, digests, span.read, question.span, kept, by_reason)


def _without_kept(
    remaining: RemainingMessages,
    whole: Array,
    answers: Sequence[InterestAnswer],
    by_hold: Array,
) -> RemainingMessages:
    """The remaining messages, with the released ones that vetoes keep.

    Args:
        remaining: the messages that consumers have not released.
        whole: a mask of the completely released files that vetoes keep completely.
        answers: the answers from rows, about other files.
        by_hold: the messages of these files that each legal hold keeps.
    """
    ranges = pa.concat_tables([answer.kept for answer in answers] or [empty_table(REMOVED_RANGES)])
    if not ranges.num_rows and not whole.any():
        return remaining
    files = remaining.inventory.files
    messages, size = (np.where(whole, files[name].to_numpy(), 0) for name in ("messages", "bytes"))
    np.add.at(messages, ranges["file"].to_numpy(), ranges["messages"].to_numpy())
    np.add.at(size, ranges["file"].to_numpy(), ranges["bytes"].to_numpy())
    in_part = np.isin(np.arange(files.num_rows), [*remaining.numbers, *ranges["file"].to_numpy()])
    released = ranges_of(answers, None).only(in_part)
    by_reason = sum(
        (answer.by_reason[: len(by_hold)] for answer in answers if len(answer.by_reason)), by_hold
    )
    kept = KeptFromRelease(messages, size, RemovedRanges(ranges), by_reason)
    return replace(remaining, released=released, kept=kept)


def _in_doubt(spans: Spans, ask: Array) -> Iterator[Array]:
    """The row numbers of the files of undecided spans, in batches of whole spans."""
    numbers = np.flatnonzero(ask)
    for first, end in runs_within(spans.messages[numbers].tolist(), MESSAGES_AT_ONCE):
        yield np.concatenate(
            [
                np.arange(spans.first_file[span], spans.first_file[span + 1])
                for span in numbers[first:end]
            ]
        )


def _left(
    inventory: Inventory, whole: Array, answers: Sequence[InterestAnswer]
) -> RemainingMessages:
    """Combine the decisions from metadata and from rows to the remaining messages.

    Args:
        inventory: the stream.
        whole: a mask of files completely released by metadata.
        answers: the answers from rows, about the other files.
    """
    if not whole.any() and not answers:
        return all_remaining(inventory)
    files = inventory.files
    lost = np.where(whole, files["messages"].to_numpy(), 0)
    for answer in answers:
        for ranges in (answer.counts, answer.kept):
            np.add.at(lost, ranges["file"].to_numpy(), ranges["messages"].to_numpy())
    stays = lost < files["messages"].to_numpy()
    changed = {number: stats for answer in answers for number, stats in answer.left.items()}
    numbers = np.flatnonzero(stays)
    table = _changed(files.take(pa.array(numbers)), numbers, changed)
    order = np.lexsort([table[name].to_numpy() for name in ("min_seq", "segment", "partition")])
    numbers = numbers[order]
    at = {
        InventoryRow(number): RemainingRow(row)
        for row, number in enumerate(numbers.tolist() if changed else ())
    }
    return RemainingMessages(
        inventory=inventory,
        files=table.take(pa.array(order)),
        numbers=numbers,
        released=ranges_of(answers, None).only(stays),
        digests={
            at[number]: digest for answer in answers for number, digest in answer.digests.items()
        },
        read=sum((answer.read for answer in answers), ReadCount()),
    )


def _changed(table: pa.Table, numbers: Array, changed: Mapping[InventoryRow, RowSizes]) -> pa.Table:
    """Files, with the statistics of remaining messages replacing the stored ones in some."""
    if not changed:
        return table
    is_changed = np.isin(numbers, list(changed))
    stored = table.filter(pa.array(is_changed)).to_pylist()
    new = [
        {**row, **changed[InventoryRow(int(number))]}
        for row, number in zip(stored, numbers[is_changed], strict=True)
    ]
    parts = [table.filter(pa.array(~is_changed)), pa.Table.from_pylist(new, schema=FILE_STATS)]
    places = np.concatenate([np.flatnonzero(~is_changed), np.flatnonzero(is_changed)])
    return pa.concat_tables(parts).take(pa.array(np.argsort(places)))
