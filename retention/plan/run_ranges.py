"""The ranges of sequences that a run removes from each file, with their known rules: `RUN_RANGES`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.column_values import FEW, equals_text
from retention.core.inventory import NO_RANGES
from retention.core.row_numbers import rows_at
from retention.core.seq_ranges import difference_of_ranges, highest_by_partition, ranges_in
from retention.core.slices import slices_of
from retention.core.spans import Array, spans_of
from retention.plan.actions import DROP
from retention.plan.plan import Plan
from retention.plan.removed_ranges import RemovedRanges
from retention.plan.rule_rows import rule_counts
from retention.rules import RULES
from retention.schemas.runs import RUN_RANGES

_MOST_EXCEPTED = 1 << 18
"""Exceptions held at a time, without a split of a file's exceptions."""


def ranges_of_plan(plan: Plan) -> Iterator[pa.Table]:
    """The ranges that a plan removes, in pieces of shape `RUN_RANGES`.

    For a partly removed file, rows gave every range and its rule. A completely removed file is one
    range. If several rules share such a file, ranges known from rows are listed separately, and the
    rest is one range.
    """
    shares = _shares_of_dropped(plan)
    yield from _whole_files(plan.actions.files, shares)
    for parts in chain(plan.actions.removed.tables(), shares.by_rows.tables()):
        for some in slices_of(parts):
            yield _parts(plan.actions.files, some)


def ranges_of_files(files: pa.Table, lost: Mapping[str, Array]) -> pa.Table:
    """The ranges that a run removes from files by no rule; shape `RUN_RANGES`.

    Args:
        files: the files that it removes or replaces; the columns of `FILE_STATS`.
        lost: path → ranges removed from a replaced file, each sequence of them a message; shape (n,
            2). Files without an entry are removed completely.
    """
    partly = pc.is_in(files["path"], value_set=pa.array(list(lost), pa.string()))
    going = files.filter(pc.invert(partly))
    counts = np.zeros((going.num_rows, len(RULES)), dtype=np.int64)
    numbers = np.arange(going.num_rows)
    shares = _Shares(numbers, counts, counts > 0, going["messages"].to_numpy(), going["bytes"])
    whole = _whole_files(going, shares)
    rows = [
        {
            "path": row["path"],
            "partition": row["partition"],
            "segment": row["segment"],
            "first_seq": first,
            "last_seq": last,
            "messages": last - first + 1,
            "rules": [],
            "counts": [],
            "except_firsts": [],
            "except_lasts": [],
        }
        for row in files.filter(partly).select(["path", "partition", "segment"]).to_pylist()
        for first, last in lost[row["path"]].tolist()
    ]
    return pa.concat_tables([*whole, pa.Table.from_pylist(rows, schema=RUN_RANGES)])


def sequences_of(rows: pa.Table) -> Array:
    """The sequences of rows of `RUN_RANGES`, without their exceptions, as inclusive ranges; shape (n, 2)."""
    plain = pc.equal(pc.list_value_length(rows["except_firsts"]), 0)
    whole = rows.filter(plain)
    ends = np.stack([whole[name].to_numpy() for name in ("first_seq", "last_seq")], axis=1)
    columns = ["first_seq", "last_seq", "except_firsts", "except_lasts"]
    others = rows.filter(pc.invert(plain)).select(columns).to_pylist()
    return np.concatenate([ends, *map(_without_exceptions, others)])


def highest_removed(ranges: pa.Table) -> dict[int, int]:
    """Partition → the highest sequence in ranges of shape `RUN_RANGES`; partitions without ranges are omitted."""
    return highest_by_partition(ranges["partition"].to_numpy(), ranges["last_seq"].to_numpy())


@dataclass(frozen=True)
class _Shares:
    """The shares of rules in completely removed files; one entry per file."""

    numbers: Array
    """Row numbers among the files of the run."""
    counts: Array
    """Messages by rule; shape (files, rules)."""
    may: Array
    """A mask of the rules that may have removed a message of the file; shape (files, rules)."""
    messages: Array
    bytes: pa.ChunkedArray
    """Bytes removed from the file; null if unknown."""
    by_rows: RemovedRanges = field(default_factory=RemovedRanges)
    """Ranges with a rule known from rows, of these and of other files; they are listed separately."""

    def of(self, some: slice) -> _Shares:
        """The shares in a slice of these files."""
        return replace(
            self,
            numbers=self.numbers[some],
            counts=self.counts[some],
            may=self.may[some],
            messages=self.messages[some],
            bytes=self.bytes[some],
        )


def _shares_of_dropped(plan: Plan) -> _Shares:
    """The shares of rules in the files that a plan drops, and the ranges known from rows.

    Statistics give the number of messages that each rule removes from a span. In a span of several
    files, with interleaved sequences, they do not assign messages to rules: any rule of the span
    may have removed any message.
    """
    numbers = np.flatnonzero(equals_text(plan.actions.files["action"], DROP))
    dropped = rows_at(plan.actions.files, numbers)
    counts = rule_counts(plan.actions.rules, plan.actions.files.num_rows)[numbers]
    messages, size = (dropped[name] for name in ("removed_messages", "removed_bytes"))
    by_rule = counts > 0
    if np.count_nonzero(by_rule.any(axis=0)) == 1 and by_rule.any(axis=1).all():
        # One rule removes all of them, in whatever span.
        return _Shares(numbers, counts, by_rule, messages.to_numpy(), size)
    spans = spans_of(dropped)
    may = _in_span(counts, spans.first_file)[spans.span_of_file]
    doubtful = may.sum(axis=1) > 1
    if not doubtful.any():
        return _Shares(numbers, counts, may, messages.to_numpy(), size)
    decided = _decided_by_rows(plan, numbers[doubtful])
    known, decided_bytes = np.zeros_like(counts), np.zeros(len(numbers), dtype=np.int64)
    for ranges in decided.tables():
        at = np.searchsorted(numbers, ranges["file"].to_numpy())
        np.add.at(known, (at, ranges["rule"].to_numpy()), ranges["messages"].to_numpy())
        np.add.at(decided_bytes, at, ranges["bytes"].to_numpy())
    rest = np.maximum(counts - known, 0)
    left = messages.to_numpy() - known.sum(axis=1)
    may = np.where((left > 0)[:, None], _in_span(rest, spans.first_file)[spans.span_of_file], may)
    some = left > 0
    return _Shares(
        numbers[some],
        rest[some],
        may[some],
        left[some],
        pa.chunked_array([pa.array(size.to_numpy()[some] - decided_bytes[some])]),
        decided,
    )


def _in_span(counts: Array, first_file: Array) -> Array:
    """A mask of the rules that remove any message of each span; shape (spans, rules)."""
    if len(counts) == len(first_file) - 1:
        # Every span is one file, so there is nothing to sum up.
        return counts > 0
    return np.add.reduceat(counts, first_file[:-1]) > 0


def _decided_by_rows(plan: Plan, numbers: Array) -> RemovedRanges:
    """Ranges known from rows in some of a plan's files, by their numbers in the plan."""
    paths = plan.actions.files["path"].take(pa.array(numbers)).combine_chunks()
    in_cause = pc.index_in(paths, value_set=plan.cause.files["path"].combine_chunks())
    of_plan = np.full(plan.cause.files.num_rows, -1)
    of_plan[pc.drop_null(in_cause).to_numpy()] = numbers[
        pc.is_valid(in_cause).to_numpy(zero_copy_only=False)
    ]
    return plan.cause.parts.renumbered(of_plan)


def _whole_files(files: pa.Table, shares: _Shares) -> Iterator[pa.Table]:
    """One range for each completely removed file, in pieces if there are many exceptions; `RUN_RANGES`."""
    going = rows_at(files, shares.numbers)
    start, excepted, held = 0, [], 0
    for at, ranges in _excepted(going, shares):
        excepted.append((at - start, ranges))
        held += len(ranges)
        if held >= _MOST_EXCEPTED:
            some = slice(start, at + 1)
            yield _whole(going.slice(start, at + 1 - start), shares.of(some), excepted)
            start, excepted, held = at + 1, [], 0
    yield _whole(going.slice(start), shares.of(slice(start, None)), excepted)


def _whole(going: pa.Table, shares: _Shares, excepted: Sequence[tuple[int, Array]]) -> pa.Table:
    """One range for each of `going`, with exceptions by row number; shape `RUN_RANGES`."""
    rows, rules = np.nonzero(shares.may)
    between = np.concatenate([NO_RANGES, *(ranges for _, ranges in excepted)])
    excepted_rows = np.repeat(
        np.array([at for at, _ in excepted], dtype=np.int64), [len(of) for _, of in excepted]
    )
    of_rules, of_ranges = (_offsets(each, len(going)) for each in (rows, excepted_rows))
    columns = {
        "path": going["path"],
        "partition": going["partition"],
        "segment": going["segment"],
        "first_seq": going["min_seq"],
        "last_seq": going["max_seq"],
        "messages": pa.array(shares.messages),
        "bytes": shares.bytes,
        "rules": pa.ListArray.from_arrays(of_rules, _names(rules)),
        "counts": pa.ListArray.from_arrays(of_rules, pa.array(shares.counts[rows, rules])),
        "except_firsts": pa.ListArray.from_arrays(of_ranges, pa.array(between[:, 0])),
        "except_lasts": pa.ListArray.from_arrays(of_ranges, pa.array(between[:, 1])),
    }
    return pa.table(columns, schema=RUN_RANGES)


def _excepted(going: pa.Table, shares: _Shares) -> Iterator[tuple[int, Array]]:
    """Row of `going` → the ranges between its ends that are not part of it, ascending; rows without any are omitted."""
    if not shares.by_rows:
        return
    among = np.flatnonzero(np.isin(shares.numbers, shares.by_rows.files))
    apart = shares.by_rows.of_files(shares.numbers[among])
    bounds = going.select(["min_seq", "max_seq"]).take(pa.array(among)).to_pylist()
    for at, row, by_rows in zip(among.tolist(), bounds, apart, strict=True):
        ranges = ranges_in(by_rows)
        inside = (ranges[:, 1] >= row["min_seq"]) & (ranges[:, 0] <= row["max_seq"])
        if inside.any():
            yield at, ranges[inside]


def _parts(files: pa.Table, parts: pa.Table) -> pa.Table:
    """Ranges with a rule known from rows, listed separately; shape `RUN_RANGES`."""
    of = files.select(["path", "partition", "segment"]).take(parts["file"])
    one_each = pa.array(np.arange(parts.num_rows + 1, dtype=np.int32))
    none_each = pa.array(np.zeros(parts.num_rows + 1, dtype=np.int32))
    nothing = pa.ListArray.from_arrays(none_each, pa.array([], pa.int64()))
    rules, messages = _names(parts["rule"].to_numpy()), parts["messages"].combine_chunks()
    columns = {
        **{name: of[name] for name in of.schema.names},
        **{name: parts[name] for name in ("first_seq", "last_seq", "messages", "bytes")},
        "rules": pa.ListArray.from_arrays(one_each, rules),
        "counts": pa.ListArray.from_arrays(one_each, messages),
        "except_firsts": nothing,
        "except_lasts": nothing,
    }
    return pa.table(columns).cast(RUN_RANGES)


def _names(rules: Array) -> pa.Array:
    """Rules by name, from indexes into `RULES`."""
    if len(rules) > FEW:
        return pa.array(RULES).take(pa.array(rules))
    return pa.array([RULES[rule] for rule in rules.tolist()], pa.string())


def _offsets(rows: Array, count: int) -> pa.Array:
    """The offsets of a list per row, for `count` rows, from the row of each value, ascending."""
    return pa.array(np.searchsorted(rows, np.arange(count + 1)).astype(np.int32))


def _without_exceptions(row: dict[str, object]) -> Array:
    """A range without its exceptions: 1 to 9 except 3 to 4 is 1 to 2 and 5 to 9; shape (n, 2)."""
    excepted = np.array([row["except_firsts"], row["except_lasts"]], dtype=np.int64).T
    return difference_of_ranges(np.array([[row["first_seq"], row["last_seq"]]]), excepted)
