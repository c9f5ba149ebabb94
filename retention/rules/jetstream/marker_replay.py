"""Expiry with markers when room is short: event by event, because each marker may evict messages or be refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Policy
from retention.core.spans import Array
from retention.rules import MAX_BYTES, MAX_MSGS, RULES
from retention.rules.jetstream import delete_markers
from retention.rules.row_verdicts import STAYS
from retention.rules.rule import RowRule
from retention.schemas.plan import PLANNED_MARKERS


@dataclass(frozen=True)
class Replayed:
    """The result of the two scans."""

    verdicts: Array
    """One verdict per row: an index into `RULES`, or `STAYS`."""
    markers: pa.Table
    """The markers that remain at the end; shape `PLANNED_MARKERS`."""
    next_seq: int
    """The next sequence to assign; evicted markers have used their sequences."""
    refused: Array
    """Sequences of messages kept because no marker could be stored for them."""


def replay(
    rows: pa.Table,
    verdicts: Array,
    kept: Array,
    policy: Policy,
    expiry: Sequence[RowRule],
    next_seq: int,
) -> Replayed:
    """Apply the rules that expire messages to a whole stream (NATS STREAM.UPDATE order, steps 5 and 6).

    Python loops over expired messages only; the rest is numpy.

    Args:
        rows: the narrow columns of every message, ascending by `seq`.
        verdicts: the verdicts of the limits before expiry; `STAYS` for the rest.
        kept: a mask of the rows that vetoes keep: they count as removed, but no marker replaces them.
        policy: the stream's rules.
        expiry: the rules that expire messages, in the order of a pass.
        next_seq: the sequence of the first marker.
    """
    scans = _Scans(rows, verdicts, kept, policy, next_seq)
    for rule in expiry:
        scans.run(rule)
    return scans.result()


class _Scans:
    """The stream during the scans: the stored rows, followed by the markers stored so far."""

    def __init__(
        self, rows: pa.Table, verdicts: Array, kept: Array, policy: Policy, next_seq: int
    ) -> None:
        subjects = pc.dictionary_encode(rows["subject"].combine_chunks())
        self._rows, self._policy = rows, policy
        self._first_seq = self._next_seq = next_seq
        self._subject_of = subjects.indices.to_numpy()
        self._size = rows["size"].to_numpy()
        self._silent = pc.fill_null(rows["marker"], False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        self._verdicts, self._kept = verdicts.copy(), kept
        self._refused = np.zeros(len(verdicts), dtype=bool)
        """Rows with a refused marker; a pass attempts each once."""
        left = verdicts == STAYS
        stored = self._subject_of[left | kept]
        self._on_subject = np.bincount(stored, minlength=len(subjects.dictionary))
        self._messages, self._bytes = int(left.sum()), int(self._size[left].sum())
        self._marker_size = delete_markers.sizes(subjects.dictionary, policy)
        self._head = 0
        self._stored: list[tuple[int, int]] = []
        """For each marker: its row, and its size; evicted markers are below `_oldest`."""
        self._oldest = 0

    def run(self, rule: RowRule) -> None:
        """Expire the messages of one rule, by sequence, up to the first remaining one that stops it."""
        stops = rule.stops(self._rows)
        stopping = np.zeros(0, dtype=np.int64) if stops is None else np.flatnonzero(stops)
        passed = 0
        for row in np.flatnonzero(rule.takes(self._rows)).tolist():
            while (
                passed < len(stopping)
                and stopping[passed] < row
                and not self._is_left(stopping[passed])
            ):
                passed += 1
            if passed < len(stopping) and stopping[passed] < row:
                return
            self._expire(row, RULES.index(rule.rule))

    def result(self) -> Replayed:
        stored = self._stored[self._oldest :]
        of_row = pa.array([row for row, _ in stored], pa.int64())
        seqs = np.arange(self._next_seq - len(stored), self._next_seq)
        replaced = self._rows.select(["subject", "seq"]).take(of_row)
        columns = [pa.array(seqs), replaced["subject"], replaced["seq"]]
        table = pa.table(columns, names=PLANNED_MARKERS.names).cast(PLANNED_MARKERS)
        refused = self._rows["seq"].to_numpy()[self._refused]
        verdicts = np.where(self._kept, STAYS, self._verdicts)
        return Replayed(verdicts, table, self._next_seq, refused)

    def _is_left(self, row: int) -> bool:
        return bool(self._verdicts[row] == STAYS)

    def _expire(self, row: int, rule: int) -> None:
        if not self._is_left(row) or self._refused[row]:
            return
        subject = self._subject_of[row]
        if self._on_subject[subject] > 1 or self._silent[row] or self._kept[row]:
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
        # Limits admit a message that only replaces another one of its subject.
        replaces = policy.max_msgs_per_subject == 1
        full = policy.max_msgs is not None and self._messages >= policy.max_msgs
        heavy = policy.max_bytes is not None and self._bytes + size > policy.max_bytes
        return not (full and not replaces) and not (
            heavy and not (replaces and self._size[row] >= size)
        )

    def _store(self, row: int, rule: int) -> None:
        """Append a marker, trim as after every store, then remove the message of the marker."""
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
        """Remove the lowest sequence: a stored row, or if none is left the oldest marker."""
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
        self._on_subject[self._subject_of[row]] -= not self._kept[row]
        self._messages -= 1
        self._bytes -= int(self._size[row])
