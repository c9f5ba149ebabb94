"""Fates computed column by column, where every cause of a removal depends on publishes alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.rules.replay.fates import (
    AGE_RULE,
    BYTES_RULE,
    MSGS_RULE,
    PER_SUBJECT_RULE,
    ROLLUP_RULE,
    STAYS,
    TTL_RULE,
    Outcome,
)
from retention.rules.replay.limits import ReplayLimits
from retention.rules.replay.publishes import (
    ACCEPTED,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    Publishes,
)
from retention.schemas.deadlines import NEVER

_NEVER_REMOVED = NEVER
_EXPIRED = -1
"""The cause of an expiry: before every publish of its instant, and without a sequence (`outcome_of`)."""


def is_independent(publishes: Publishes, limits: ReplayLimits) -> bool:
    """Whether every message's fate is the first of causes that depend on publishes alone.

    Counts see messages in their order only if everything leaves from the oldest on: a message that left earlier than an
    older one makes room. Limits and roll-ups of a subject let others of the stream stay; a TTL, and `never`
    beside an age, do so within a subject.
    """
    table = publishes.rows
    if limits.may_refuse or limits.marker_ttl_ns is not None or publishes.expectations:
        return False
    times = table["ts_ns"].to_numpy()
    if (np.diff(times) < 0).any() or _may_repeat(table, limits):
        return False
    deadlines = table["deadline_ns"]
    have_ttls = limits.expires and deadlines.null_count < len(deadlines)
    unlike = have_ttls or (
        limits.max_age_ns is not None and bool(pc.any(pc.equal(deadlines, NEVER)).as_py())
    )
    by_subject = limits.max_msgs_per_subject is not None
    mixed = by_subject or bool(pc.any(pc.equal(table["rollup"], ROLLUP_SUBJECT)).as_py())
    return not (limits.trims_head and (mixed or unlike)) and not (by_subject and unlike)


def outcome_of(publishes: Publishes, limits: ReplayLimits, until_ns: int) -> Outcome:
    """The fates of independent publishes, as `Broker.run` finds them, in time n log n without a loop over messages."""
    table = publishes.rows
    codes = np.where(table["early"].to_numpy() != ACCEPTED, table["early"], table["late"])
    rows = np.flatnonzero(codes == ACCEPTED)
    stored = table.take(pa.array(rows))
    refused_before = np.cumsum(codes != ACCEPTED)[rows]
    seqs = stored["seq"].to_numpy() - refused_before
    first = _FirstCauses(stored, until_ns)
    _expire(first, stored, limits)
    _trim(first, stored, limits)
    _roll_up(first, stored)
    by = np.append(seqs, 0)[first.causes]
    return Outcome(
        codes.astype(np.int64),
        np.zeros(len(codes), dtype=np.int64),
        rows,
        rows,
        seqs,
        stored["ts_ns"].to_numpy(),
        rows,
        stored["size"].to_numpy(),
        first.rules,
        np.where(first.rules == STAYS, STAYS, first.removed_ns),
        by,
    )


class _FirstCauses:
    """For each stored message the first of the causes considered so far."""

    def __init__(self, stored: pa.Table, until_ns: int) -> None:
        self._until_ns = until_ns
        self.times = stored["ts_ns"].to_numpy()
        self.rules = np.full(len(self.times), STAYS, dtype=np.int8)
        self.removed_ns = np.full(len(self.times), _NEVER_REMOVED, dtype=np.int64)
        self.causes = np.full(len(self.times), len(self.times), dtype=np.int64)
        """The stored message that removes this one; `_EXPIRED` for none."""

    def expire(self, at_ns: np.ndarray, rule: int) -> None:
        """Consider expiries at some instants; of two at one instant the first one considered counts."""
        self._consider(at_ns, np.full(len(at_ns), _EXPIRED), rule)

    def store(self, causes: np.ndarray, rule: int) -> None:
        """Consider removals by the storing of later messages; a cause beyond the last is none."""
        happens = causes < len(self.times)
        at_ns = np.full(len(causes), _NEVER_REMOVED, dtype=np.int64)
        at_ns[happens] = self.times[causes[happens]]
        self._consider(at_ns, causes, rule)

    def _consider(self, at_ns: np.ndarray, causes: np.ndarray, rule: int) -> None:
        tie = (at_ns == self.removed_ns) & (causes < self.causes)
        earlier = ((at_ns < self.removed_ns) | tie) & (at_ns <= self._until_ns)
        earlier &= at_ns < _NEVER_REMOVED
        self.rules[earlier] = rule
        self.removed_ns[earlier] = at_ns[earlier]
        self.causes[earlier] = causes[earlier]


def _expire(first: _FirstCauses, stored: pa.Table, limits: ReplayLimits) -> None:
    deadlines = pc.fill_null(stored["deadline_ns"], NEVER).to_numpy()
    if limits.max_age_ns is not None:
        aged = np.minimum(first.times, NEVER - limits.max_age_ns) + limits.max_age_ns
        endless = np.asarray(pc.fill_null(pc.equal(stored["deadline_ns"], NEVER), False))  # noqa: FBT003
        first.expire(np.where(endless, NEVER, aged), AGE_RULE)
    if limits.expires:
        # A deadline that wrapped around is over when the message is stored.
        first.expire(np.maximum(deadlines, first.times), TTL_RULE)


def _trim(first: _FirstCauses, stored: pa.Table, limits: ReplayLimits) -> None:
    count = len(first.times)
    if limits.max_msgs_per_subject is not None:
        by_subject, codes = _by_subject(stored)
        later = np.full(count, count, dtype=np.int64)
        reach = by_subject[limits.max_msgs_per_subject :]
        same = codes[by_subject[: len(reach)]] == codes[reach]
        later[by_subject[: len(reach)][same]] = reach[same]
        first.store(later, PER_SUBJECT_RULE)
    if not limits.trims_head:
        return
    if limits.max_msgs is not None:
        first.store(np.arange(count) + limits.max_msgs, MSGS_RULE)
    if limits.max_bytes is not None:
        sizes = stored["size"].to_numpy()
        totals = np.cumsum(sizes)
        causes = np.searchsorted(totals, totals - sizes + limits.max_bytes, side="right")
        first.store(causes, BYTES_RULE)


def _roll_up(first: _FirstCauses, stored: pa.Table) -> None:
    rollups, count = stored["rollup"].to_numpy(), len(first.times)
    for kind in (ROLLUP_SUBJECT, ROLLUP_ALL):
        if not (rollups == kind).any():
            continue
        order, codes = _by_subject(stored)
        if kind == ROLLUP_ALL:
            order, codes = np.arange(count), np.zeros(count, dtype=np.int64)
        causes = np.full(count, count, dtype=np.int64)
        causes[order] = _next_in_group(order, codes[order], rollups[order] == kind, count)
        first.store(causes, ROLLUP_RULE)


def _next_in_group(
    order: np.ndarray, codes: np.ndarray, is_cause: np.ndarray, none: int
) -> np.ndarray:
    """For each place of grouped messages the next later cause in its group; `none` without one."""
    places = np.arange(len(order))
    nearest = np.minimum.accumulate(np.where(is_cause, places, len(order))[::-1])[::-1]
    after = np.append(nearest[1:], len(order))
    known = np.minimum(after, len(order) - 1)
    reached = (after < len(order)) & (codes[known] == codes)
    return np.where(reached, order[known], none)


def _by_subject(stored: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Places of messages grouped by subject, in order within each, and the code of each message's subject."""
    codes = stored["subject"].combine_chunks().dictionary_encode().indices.to_numpy()
    return np.argsort(codes, kind="stable"), codes


def _may_repeat(table: pa.Table, limits: ReplayLimits) -> bool:
    ids = table["msg_id"]
    given = len(ids) - ids.null_count
    return bool(limits.duplicate_window_ns and given > pc.count_distinct(ids).as_py())
