"""Losses of segments: rows of evidence summed by segment and rules, with their ranges merged."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.seq_ranges import difference_of_ranges
from retention.schemas.history_export import EXPORTED_LOSS, SEQ_RANGE

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Groups:
    """Rows ordered so that those of one segment and the same rules are adjacent."""

    rows: pa.Table
    starts: Array
    """The first row of each group, ascending."""
    of_row: Array
    """The group of each row, ascending."""

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.starts)


def segment_losses(taken: pa.Table) -> pa.Table:
    """The messages that a run removed, by segment and rules; shape `EXPORTED_LOSS`.

    Args:
        taken: rows of one run, shape `apply.run_evidence.TAKEN`, at least one, all with rules or all without.
    """
    groups = _grouped(taken)
    heads = groups.rows.take(pa.array(groups.starts))
    is_exact = not taken["rules"].null_count
    return pa.table(
        {
            "partition": heads["partition"],
            "segment": heads["segment"],
            "files": _files(groups),
            "messages": pa.array(
                np.add.reduceat(groups.rows["messages"].to_numpy(), groups.starts)
            ),
            "bytes": _bytes(groups),
            "rules": heads["rules"],
            "rule_messages": _rule_messages(groups, heads) if is_exact else pa.nulls(groups.count),
            "ranges": _ranges(groups) if is_exact else pa.nulls(groups.count),
        }
    ).cast(EXPORTED_LOSS)


def _grouped(taken: pa.Table) -> _Groups:
    names = pc.fill_null(pc.binary_join(taken["rules"], " "), "").combine_chunks()
    rules = names.dictionary_encode()
    keys = [taken[name].to_numpy() for name in ("partition", "segment")]
    keys.append(pc.rank(rules.dictionary).to_numpy()[rules.indices.to_numpy()])
    order = np.lexsort((taken["first_seq"].to_numpy(), *reversed(keys)))
    changes = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    starts = np.append(0, np.flatnonzero(changes) + 1)
    of_row = np.append(0, np.cumsum(changes))
    return _Groups(taken.take(pa.array(order)).combine_chunks(), starts, of_row)


def _files(groups: _Groups) -> pa.Array:
    """The number of files that a run removed, per group; files that it wrote have negative numbers of messages."""
    paths = groups.rows["path"].combine_chunks().dictionary_encode().indices.to_numpy()
    removed = groups.rows["messages"].to_numpy() >= 0
    pairs = np.unique(np.stack([groups.of_row, paths])[:, removed], axis=1)
    return pa.array(np.bincount(pairs[0], minlength=groups.count))


def _bytes(groups: _Groups) -> pa.Array:
    sizes = groups.rows["bytes"]
    unknown = np.logical_or.reduceat(sizes.is_null().to_numpy(), groups.starts)
    sums = np.add.reduceat(pc.fill_null(sizes, 0).to_numpy(), groups.starts)
    return pa.array(sums, mask=unknown)


def _rule_messages(groups: _Groups, heads: pa.Table) -> pa.Array:
    """The number of messages removed by each rule, per group; all rows of a group list the rules in the same order."""
    offsets = np.append(0, np.cumsum(pc.list_value_length(heads["rules"]).to_numpy()))
    row = pc.list_parent_indices(groups.rows["counts"]).to_numpy()
    before = np.append(0, np.cumsum(pc.list_value_length(groups.rows["counts"]).to_numpy()))
    target = offsets[groups.of_row[row]] + np.arange(len(row)) - before[row]
    sums = np.zeros(offsets[-1], dtype=np.int64)
    np.add.at(sums, target, pc.list_flatten(groups.rows["counts"]).to_numpy())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(sums))


def _ranges(groups: _Groups) -> pa.Array:
    """The ranges of each group, ascending and disjoint."""
    group, first, last = _without_exceptions(groups)
    order = np.lexsort((first, group))
    group, first, last = group[order], first[order], last[order]
    is_new = np.ones(len(group), dtype=bool)
    is_new[1:] = np.diff(group) != 0
    if np.any(~is_new[1:] & (first[1:] <= last[:-1])):
        bounds = np.append(np.flatnonzero(is_new), len(group))
        for start, end in pairwise(bounds.tolist()):
            last[start:end] = np.maximum.accumulate(last[start:end])
    is_new[1:] |= first[1:] > last[:-1] + 1
    starts = np.flatnonzero(is_new)
    ends = np.append(starts[1:], len(group))[: len(starts)] - 1
    offsets = np.searchsorted(group[starts], np.arange(groups.count + 1))
    ranges = pa.StructArray.from_arrays(
        [pa.array(first[starts]), pa.array(last[ends])], fields=list(SEQ_RANGE)
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ranges)


def _without_exceptions(groups: _Groups) -> tuple[Array, Array, Array]:
    """The group, first and last sequence of each range of the rows, without their exceptions."""
    rows = groups.rows
    is_whole = pc.list_value_length(rows["except_firsts"]).to_numpy() == 0
    ends = [rows[name].to_numpy() for name in ("first_seq", "last_seq")]
    parts = [(groups.of_row[is_whole], ends[0][is_whole], ends[1][is_whole])]
    for at in np.flatnonzero(~is_whole).tolist():
        excepted = [rows[name][at].values.to_numpy() for name in ("except_firsts", "except_lasts")]
        whole = np.array([[ends[0][at], ends[1][at]]])
        left = difference_of_ranges(whole, np.stack(excepted, axis=1))
        parts.append((np.full(len(left), groups.of_row[at]), left[:, 0], left[:, 1]))
    group, first, last = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return group, first, last.copy()
