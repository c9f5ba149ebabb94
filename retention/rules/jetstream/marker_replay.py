"""Expiry with markers where room is short: event by event, since each marker stored may evict or be refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Policy
from retention.core.spans import Array
from retention.rules import MAX_AGE, MAX_BYTES, MAX_MSGS, MSG_TTL, RULES
from retention.rules.jetstream import delete_markers
from retention.rules.row_verdicts import STAYS
from schemas.messages import NEVER
from schemas.plan import PLANNED_MARKERS


@dataclass(frozen=True)
class Replayed:
    """What the two scans did."""

    verdicts: Array
    """One a row: an index into `RULES`, or `STAYS`."""
    markers: pa.Table
    """Those that are left at the end; shape `PLANNED_MARKERS`."""
    next_seq: int
    """The next sequence to assign; markers that were evicted again have used theirs."""
    refused: Array
    """Sequences of the messages that stay because no marker could be stored for them."""


def replay(
    rows: pa.Table, verdicts: Array, policy: Policy, as_of_ns: int, next_seq: int
) -> Replayed:
    """Run the age scan and the TTL scan over a whole stream (NATS STREAM.UPDATE order, steps 5 and 6).

    Work is by expired message; everything else is numpy.

    Args:
        rows: the narrow columns of every message, ascending by `seq`.
        verdicts: what the limits before expiry take; `STAYS` for the rest.
        policy: the stream's rules.
        as_of_ns: the pass's instant.
        next_seq: the sequence of the first marker.
    """
    scans = _Scans(rows, verdicts, policy, next_seq)
    if policy.max_age_ns is not None:
        scans.by_age(as_of_ns - policy.max_age_ns)
    scans.by_deadline(as_of_ns)
    return scans.result()


class _Scans:
    """The stream while the scans run: the stored rows, and behind them the markers stored so far."""

    def __init__(self, rows: pa.Table, verdicts: Array, policy: Policy, next_seq: int) -> None:
        subjects = pc.dictionary_encode(rows["subject"].combine_chunks())
        self._rows, self._policy = rows, policy
        self._first_seq = self._next_seq = next_seq
        self._subject_of = subjects.indices.to_numpy()
        self._size = rows["size"].to_numpy()
        self._silent = pc.fill_null(rows["marker"], False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        self._verdicts = verdicts.copy()
        self._refused = np.zeros(len(verdicts), dtype=bool)
        """Rows whose marker was refused: a pass tries each once."""
        left = verdicts == STAYS
        self._on_subject = np.bincount(self._subject_of[left], minlength=len(subjects.dictionary))
        self._messages, self._bytes = int(left.sum()), int(self._size[left].sum())
        self._marker_size = delete_markers.sizes(subjects.dictionary, policy)
        self._head = 0
        self._stored: list[tuple[int, int]] = []
        """Of each marker: the row that it stands for, and its size; evicted ones are below `_oldest`."""
        self._oldest = 0

    def by_age(self, cutoff_ns: int) -> None:
        """The age scan: from the lowest sequence to the first message that is left and young."""
        ts_ns, deadlines = self._rows["ts_ns"].to_numpy(), self._deadlines(0)
        young = np.flatnonzero(ts_ns > cutoff_ns)
        old = np.flatnonzero((ts_ns <= cutoff_ns) & (deadlines != NEVER))
        passed = 0
        for row in old.tolist():
            while passed < len(young) and young[passed] < row and not self._is_left(young[passed]):
                passed += 1
            if passed < len(young) and young[passed] < row:
                return
            self._expire(row, RULES.index(MAX_AGE))

    def by_deadline(self, due_ns: int) -> None:
        """The TTL scan: every message whose deadline has passed, by sequence."""
        for row in np.flatnonzero(self._deadlines(NEVER) <= due_ns).tolist():
            self._expire(row, RULES.index(MSG_TTL))

    def result(self) -> Replayed:
        stored = self._stored[self._oldest :]
        of_row = pa.array([row for row, _ in stored], pa.int64())
        seqs = np.arange(self._next_seq - len(stored), self._next_seq)
        replaced = self._rows.select(["subject", "seq"]).take(of_row)
        columns = [pa.array(seqs), replaced["subject"], replaced["seq"]]
        table = pa.table(columns, names=PLANNED_MARKERS.names).cast(PLANNED_MARKERS)
        refused = self._rows["seq"].to_numpy()[self._refused]
        return Replayed(self._verdicts, table, self._next_seq, refused)

    def _deadlines(self, absent: int) -> Array:
        return pc.fill_null(self._rows["deadline_ns"], absent).to_numpy()

    def _is_left(self, row: int) -> bool:
        return bool(self._verdicts[row] == STAYS)

    def _expire(self, row: int, rule: int) -> None:
        if not self._is_left(row) or self._refused[row]:
            return
        subject = self._subject_of[row]
        if self._on_subject[subject] > 1 or self._silent[row]:
            self._remove(row, rule)
        elif self._is_accepted(row):
            self._store(row, rule)
        else:
            self._refused[row] = True

    def _is_accepted(self, row: int) -> bool:
        policy, size = self._policy, self._marker_size[self._subject_of[row]]
        if delete_markers.refuses_all(policy):
            return False
        if policy.discard == "old":
            return True
        # The limits let a message pass that only replaces another one of its subject.
        replaces = policy.max_msgs_per_subject == 1
        full = policy.max_msgs is not None and self._messages >= policy.max_msgs
        heavy = policy.max_bytes is not None and self._bytes + size > policy.max_bytes
        return not (full and not replaces) and not (
            heavy and not (replaces and self._size[row] >= size)
        )

    def _store(self, row: int, rule: int) -> None:
        """Append a marker, trim as after every store, then let the message go that it stands for."""
        size = int(self._marker_size[self._subject_of[row]])
        self._stored.append((row, size))
        self._next_seq += 1
        self._messages += 1
        self._bytes += size
        if self._policy.max_msgs_per_subject == 1:
            self._remove(row, rule)
        if self._policy.discard == "old":
            self._trim()
        if self._verdicts[row] == STAYS:
            self._remove(row, rule)
        else:
            self._verdicts[row] = rule

    def _trim(self) -> None:
        policy = self._policy
        while policy.max_msgs is not None and self._messages > policy.max_msgs:
            self._evict(RULES.index(MAX_MSGS))
        while policy.max_bytes is not None and self._bytes > policy.max_bytes:
            self._evict(RULES.index(MAX_BYTES))

    def _evict(self, rule: int) -> None:
        """Let the lowest sequence go: a stored row, or when none is left the oldest marker."""
        while self._head < len(self._verdicts) and not self._is_left(self._head):
            self._head += 1
        if self._head < len(self._verdicts):
            self._remove(self._head, rule)
            return
        self._messages -= 1
        self._bytes -= self._stored[self._oldest][1]
        self._oldest += 1

    def _remove(self, row: int, rule: int) -> None:
        self._verdicts[row] = rule
        self._on_subject[self._subject_of[row]] -= 1
        self._messages -= 1
        self._bytes -= int(self._size[row])
