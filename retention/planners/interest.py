"""Interest and work-queue retention on a stored stream: what consumers let go of, from metadata, digests, then rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from retention.core.inventory import Inventory, ReadCount
from retention.core.neighbours import runs_within
from retention.core.policy import Unmatched
from retention.core.spans import Array, Spans, spans_of
from retention.datafile.row_stats import row_stats, seq_and_size_stats
from retention.datafile.subject_digest import MESSAGES_AT_ONCE, count_subjects
from retention.plan.remaining import (
    InventoryRow,
    RemainingMessages,
    RemainingRow,
    StoredDigest,
    all_remaining,
)
from retention.plan.removed_ranges import ranges_of
from retention.planners.context import PlanningContext
from retention.planners.rows import StreamRows
from retention.rules import RULES
from retention.rules.jetstream.interest import Interest, Release, refined, release, released_rows
from retention.rules.row_verdicts import STAYS, SpanRows, StoredRanges, removed_ranges
from schemas.files import FILE_STATS
from schemas.messages import RULE_COLUMNS


@dataclass(frozen=True)
class UnneededQuestion:
    """A question to the rows of one span: the messages that no consumer needs."""

    span: int
    interests: tuple[Interest, ...]
    unmatched: Unmatched
    rule: str
    in_full: bool
    """Whether limits look at more of what is left than its count and size."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it takes to answer."""
        return RULE_COLUMNS if self.in_full else ("seq", "subject", "size")


@dataclass(frozen=True)
class InterestAnswer:
    """The answer of one span's rows to an `UnneededQuestion`."""

    removed: pa.Table
    """Shape `REMOVED_RANGES`, `file` being a row number of the inventory; empty where they are stored."""
    left: dict[InventoryRow, dict[str, Any]]
    """File that keeps some → what is left of it, fields of `FILE_STATS`."""
    digests: Mapping[InventoryRow, pa.Table | StoredDigest]
    """File that keeps some → the subject digest of what is left of it, where limits look at it."""
    read: ReadCount
    span: int
    stored: StoredRanges | None = None
    """The ranges that go, where they are so many that they lie in a file."""

    @property
    def counts(self) -> pa.Table:
        """Rows with `file` and `messages`, which add up to what goes."""
        return self.removed if self.stored is None else self.stored.counts


def remaining_of(context: PlanningContext, rows: StreamRows) -> RemainingMessages:
    """The part of a stream that consumers leave, exactly; all of it where its retention is `limits`.

    Raises:
        DamagedError: a file that had to be read is damaged.
    """
    inventory, policy = context.inventory, context.policy
    if policy.retention == "limits":
        return all_remaining(inventory)
    spans, interests = spans_of(inventory.files), context.consumers.interests
    decided = decide_release(context, spans, rows)
    looks = (policy.max_age_ns, policy.max_msgs_per_subject, policy.delete_retention_ns)
    in_full = policy.allow_msg_ttl or any(limit is not None for limit in looks)
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
        )
        for span in np.flatnonzero(decided.ask)
    ]
    answers = rows.of(all_remaining(inventory))(find_unneeded, spans, questions)
    return _left(inventory, decided.whole[spans.span_of_file], answers)


def decide_release(context: PlanningContext, spans: Spans, rows: StreamRows) -> Release:
    """Decide what consumers release as far as metadata goes; subject digests are read only of spans in doubt."""
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
    """Find the rows of one span that no consumer needs, and what is left of its files."""
    gone = released_rows(span.rows, question.interests, question.unmatched)
    verdicts = np.where(gone, RULES.index(question.rule), STAYS).astype(np.int8)
    stats = row_stats if question.in_full else seq_and_size_stats
    left, digests = {}, {}
    for number in map(InventoryRow, np.unique(span.file_of_row[gone]).tolist()):
        rows = span.rows.filter(pa.array((span.file_of_row == number) & ~gone))
        if rows.num_rows:
            left[number] = stats(rows)
            if question.in_full:
                digests[number] = count_subjects(rows)
    return InterestAnswer(removed_ranges(span, verdicts), left, digests, span.read, question.span)


def _in_doubt(spans: Spans, ask: Array) -> Iterator[Array]:
    """The row numbers of the files of spans in doubt, all files of some spans at a time."""
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
    """Put together what metadata and rows say of the messages that consumers leave.

    Args:
        inventory: the stream.
        whole: files that go whole by metadata; a mask.
        answers: of rows, about the others.
    """
    if not whole.any() and not answers:
        return all_remaining(inventory)
    files = inventory.files
    lost = np.where(whole, files["messages"].to_numpy(), 0)
    for answer in answers:
        np.add.at(lost, answer.counts["file"].to_numpy(), answer.counts["messages"].to_numpy())
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


def _changed(
    table: pa.Table, numbers: Array, changed: dict[InventoryRow, dict[str, Any]]
) -> pa.Table:
    """Files with what is left of some of them in place of what is stored."""
    if not changed:
        return table
    is_changed = np.isin(numbers, list(changed))
    stored = table.filter(pa.array(is_changed)).to_pylist()
    new = [
        row | changed[InventoryRow(int(number))]
        for row, number in zip(stored, numbers[is_changed], strict=True)
    ]
    parts = [table.filter(pa.array(~is_changed)), pa.Table.from_pylist(new, schema=FILE_STATS)]
    places = np.concatenate([np.flatnonzero(~is_changed), np.flatnonzero(is_changed)])
    return pa.concat_tables(parts).take(pa.array(np.argsort(places)))
