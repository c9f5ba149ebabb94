"""A replayed server: it takes publishes in order, at their instants, and expires messages between them."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.subjects import matching_mask
from retention.rules.replay.entries import Entries
from retention.rules.replay.expiry import Expiries
from retention.rules.replay.fates import (
    BYTES_RULE,
    FULL_BYTES,
    FULL_MSGS,
    FULL_SUBJECT,
    IS_DUPLICATE,
    MSGS_RULE,
    PER_SUBJECT_RULE,
    ROLLUP_RULE,
    Outcome,
)
from retention.rules.replay.limits import ReplayLimits
from retention.rules.replay.publishes import (
    ACCEPTED,
    NO_ROLLUP,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    SINCE_EVER_NS,
    Expectation,
    Publishes,
)
from retention.rules.replay.start import Start

WRONG_LAST_SEQ, WRONG_LAST_ID, NO_SUBJECT_SEQ = 10071, 10070, 10193


class Broker:
    """The state of a server between two events. The work is linear in messages, each stored and removed once."""

    def __init__(
        self, publishes: Publishes, limits: ReplayLimits, start: Start | None = None
    ) -> None:
        table = publishes.rows
        encoded = table["subject"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()
        self._limits, self._names = limits, encoded.dictionary
        self._subject_rows = np.zeros(len(encoded.dictionary), dtype=np.int64)
        self._subject_rows[codes[::-1]] = np.arange(len(codes))[::-1]
        self._subjects: Sequence[int] = codes.tolist()
        self._given_seqs, self._times, self._sizes = (
            array("q", table[name].to_numpy().tobytes()) for name in ("seq", "ts_ns", "size")
        )
        self._deadlines, self._ids, self._rollups = (
            table[name].to_pylist() for name in ("deadline_ns", "msg_id", "rollup")
        )
        self._early, self._late = table["early"].to_pylist(), table["late"].to_pylist()
        self._silent = table["silent"].to_pylist()
        lengths = pc.binary_length(encoded.dictionary).cast(pa.int64())
        self._marker_sizes: Sequence[int] = pc.add(lengths, limits.marker_bytes).to_pylist()
        self._publishes = publishes
        self._entries = Entries()
        self._expiries = Expiries(self._entries, limits.max_age_ns, expires=limits.expires)
        self._remembered: dict[str, tuple[int, int]] = {}
        self._oldest_ids: deque[tuple[int, str]] = deque()
        self._row = 0
        self._now_ns = SINCE_EVER_NS
        self._last_seq = self._given_seqs[0] - 1 if self._given_seqs else 0
        self._shift = 0
        """The difference of a publish's sequence on the server from its sequence here."""
        self._last_id = ""
        self._matching: dict[str, list[int]] = {}
        """Filter of an expectation → the subjects that match it."""
        self._changes = 0
        """The number of changes when refused markers were last considered."""
        self._start = start or Start(clock_ns=self._now_ns, last_seq=self._last_seq)
        self._resume(self._start)

    def _resume(self, start: Start) -> None:
        """Hold what the server held, without applying a limit to it."""
        self._now_ns, self._last_seq = start.clock_ns, start.last_seq
        self._shift, self._last_id = start.shift, start.last_id
        for row, seq in enumerate(start.server_seqs.tolist()):
            instants = (self._times[row], self._times[row])
            entry = self._entries.add(
                row, row, seq, self._subjects[row], self._sizes[row], instants
            )
            self._expiries.add(entry, self._deadlines[row])
        self._remembered = dict(start.ids)
        by_time = sorted((stored_ns, msg_id) for msg_id, (_, stored_ns) in start.ids.items())
        self._oldest_ids = deque(by_time)

    def update(self) -> Outcome:
        """Apply the limits to what is held, at the instant of the start, as an update of the configuration does."""
        entries, cap = self._entries, self._limits.max_msgs_per_subject
        self._trim_head()
        for subject in range(len(self._names)):
            while cap is not None and entries.count(subject) > cap:
                entries.remove(entries.first_of(subject), PER_SUBJECT_RULE, self._now_ns)
        self._advance(self._now_ns)
        nothing = np.zeros(len(self._times), dtype=np.int64)
        return entries.outcome(nothing, nothing, self._subject_rows)

    def run(self, until_ns: int) -> Outcome:
        """Take every publish that is not held already, then let messages expire.

        Args:
            until_ns: the last instant, nanoseconds since the epoch; every publish is at it or before.
        """
        held = len(self._start.server_seqs)
        instants = self._publishes.instants(held, self._now_ns).tolist()
        codes = np.zeros(len(self._times), dtype=np.int64)
        originals = np.zeros(len(self._times), dtype=np.int64)
        for self._row, instant in enumerate(instants, held):
            self._advance(instant)
            code, originals[self._row] = self._take(self._row)
            codes[self._row] = code
            self._shift -= code != ACCEPTED
        self._row = len(codes)
        self._advance(until_ns)
        return self._entries.outcome(codes, originals, self._subject_rows)

    def _advance(self, to_ns: int) -> None:
        """Let everything expire that is due at an instant or before, each at its own."""
        self._retry_refused()
        while (due := self._expiries.next_ns()) <= to_ns:
            self._now_ns = max(self._now_ns, due)
            for entry, rule in self._expiries.due(self._now_ns):
                if self._entries.is_held(entry):
                    self._expire(entry, rule)
            self._retry_refused()
        self._now_ns = max(self._now_ns, to_ns)

    def _retry_refused(self) -> None:
        """Let refused markers be tried again if the stream changed, and the shortest marker might have room now."""
        entries, limits = self._entries, self._limits
        if not self._expiries.waits or self._changes == entries.changes or limits.refuses_markers:
            return
        self._changes = entries.changes
        by_count = limits.max_msgs is None or entries.messages < limits.max_msgs
        shortest = entries.bytes + limits.marker_bytes
        by_bytes = limits.max_bytes is None or shortest < limits.max_bytes
        if (by_count or limits.max_msgs_per_subject == 1) and by_bytes:
            self._expiries.retry(self._now_ns)

    def _expire(self, entry: int, rule: int) -> None:
        entries, row = self._entries, self._entries.rows[entry]
        subject = entries.subjects[entry]
        is_silent = row < 0 or self._silent[row]
        if self._limits.marker_ttl_ns is None or is_silent or not entries.is_last(entry):
            entries.remove(entry, rule, self._now_ns)
        elif self._limits.refuses_markers or self._full(
            subject, self._marker_sizes[subject], is_rollup=True
        ):
            self._expiries.refused(entry, rule, self._now_ns)
        else:
            self._replace(entry, rule, self._limits.marker_ttl_ns)

    def _replace(self, entry: int, rule: int, ttl_ns: int) -> None:
        """Store a marker in place of the last message of a subject."""
        entries, subject = self._entries, self._entries.subjects[entry]
        seq = self._last_seq + 1
        self._shift += 1
        marker = entries.add(
            -1, self._row, seq, subject, self._marker_sizes[subject], (self._now_ns, self._now_ns)
        )
        # The expired message counts while limits are applied; if they remove it, expiry is the reason nevertheless.
        self._stored(marker, self._now_ns + ttl_ns)
        if entries.is_held(entry):
            entries.remove(entry, rule, self._now_ns, seq)
        entries.blame(entry, rule)
        self._roll_up(marker, subject, ROLLUP_SUBJECT)
        self._last_id = ""

    def _take(self, row: int) -> tuple[int, int]:
        """Answer a publish: the code of the answer, and for a duplicate the sequence of its original."""
        if self._early[row] != ACCEPTED:
            return self._early[row], 0
        expectation = self._publishes.expectations.get(self._given_seqs[row])
        if expectation and (code := self._wrong_sequence(row, expectation)):
            return code, 0
        msg_id = self._ids[row]
        original = self._original(msg_id) if msg_id is not None else None
        if original is not None:
            return IS_DUPLICATE, original
        if expectation and expectation.last_id not in (None, self._last_id.encode()):
            return WRONG_LAST_ID, 0
        subject, size, rollup = self._subjects[row], self._sizes[row], self._rollups[row]
        code = self._late[row] or self._full(subject, size, is_rollup=rollup != NO_ROLLUP)
        if code != ACCEPTED:
            return code, 0
        self._publish(row, subject, size, rollup)
        return ACCEPTED, 0

    def _publish(self, row: int, subject: int, size: int, rollup: int) -> None:
        entries, seq = self._entries, self._given_seqs[row] + self._shift
        # The last message of a subject with a refused marker is no longer its last.
        self._expiries.retry(self._now_ns, subject)
        entry = entries.add(row, row, seq, subject, size, (self._times[row], self._now_ns))
        self._stored(entry, self._deadlines[row])
        self._roll_up(entry, subject, rollup)
        msg_id = self._ids[row]
        self._last_id = msg_id or ""
        if msg_id is not None and self._limits.duplicate_window_ns:
            self._remembered[msg_id] = (seq, self._now_ns)
            self._oldest_ids.append((self._now_ns, msg_id))

    def _stored(self, entry: int, deadline_ns: int | None) -> None:
        """Apply the limits after a message was stored: of its subject, then of the stream."""
        entries, limits = self._entries, self._limits
        seq = self._last_seq = entries.seqs[entry]
        subject, cap = entries.subjects[entry], limits.max_msgs_per_subject
        while cap is not None and entries.count(subject) > cap:
            entries.remove(entries.first_of(subject), PER_SUBJECT_RULE, self._now_ns, seq)
        self._trim_head(seq)
        if entries.is_held(entry):
            self._expiries.add(entry, deadline_ns)

    def _trim_head(self, by_seq: int = 0) -> None:
        entries, limits = self._entries, self._limits
        if limits.refuses_new:
            return
        while limits.max_msgs is not None and entries.messages > limits.max_msgs:
            entries.remove(entries.head(), MSGS_RULE, self._now_ns, by_seq)
        while limits.max_bytes is not None and entries.bytes > limits.max_bytes:
            entries.remove(entries.head(), BYTES_RULE, self._now_ns, by_seq)

    def _roll_up(self, entry: int, subject: int, rollup: int) -> None:
        entries, seq = self._entries, self._entries.seqs[entry]
        if rollup == ROLLUP_ALL:
            while (head := entries.head()) < entry:
                entries.remove(head, ROLLUP_RULE, self._now_ns, seq)
        elif rollup == ROLLUP_SUBJECT:
            while entries.count(subject) and (first := entries.first_of(subject)) < entry:
                entries.remove(first, ROLLUP_RULE, self._now_ns, seq)

    def _full(self, subject: int, size: int, *, is_rollup: bool) -> int:
        """The code by which a full stream refuses a message; `ACCEPTED` if it has room."""
        entries, limits = self._entries, self._limits
        if not limits.refuses_new:
            return ACCEPTED
        cap = limits.max_msgs_per_subject
        at_cap = cap is not None and entries.count(subject) >= cap
        if at_cap and limits.refuses_per_subject and not is_rollup:
            return FULL_SUBJECT
        if limits.max_msgs is not None and entries.messages >= limits.max_msgs and not at_cap:
            return FULL_MSGS
        if limits.max_bytes is not None and entries.bytes + size > limits.max_bytes:
            replaces = at_cap and entries.sizes[entries.first_of(subject)] >= size
            return ACCEPTED if replaces else FULL_BYTES
        return ACCEPTED

    def _original(self, msg_id: str) -> int | None:
        """The sequence of the message with this id, as long as the id is remembered."""
        forgotten_ns = self._now_ns - self._limits.duplicate_window_ns
        while self._oldest_ids and self._oldest_ids[0][0] <= forgotten_ns:
            del self._remembered[self._oldest_ids.popleft()[1]]
        known = self._remembered.get(msg_id)
        return None if known is None else known[0]

    def _wrong_sequence(self, row: int, expectation: Expectation) -> int:
        if expectation.subject_seq is not None:
            actual = self._last_seq_on(row, expectation.subject)
            if not _is_number(expectation.subject_seq, actual):
                return WRONG_LAST_SEQ
        elif expectation.subject is not None:
            return NO_SUBJECT_SEQ
        if expectation.last_seq is not None and not _is_number(
            expectation.last_seq, self._last_seq
        ):
            return WRONG_LAST_SEQ
        return ACCEPTED

    def _last_seq_on(self, row: int, subjects: str | None) -> int:
        if subjects is None:
            return self._entries.last_seq_of(self._subjects[row])
        if subjects not in self._matching:
            mask = np.asarray(matching_mask(self._names, [subjects]), dtype=bool)
            self._matching[subjects] = np.flatnonzero(mask).tolist()
        return max(map(self._entries.last_seq_of, self._matching[subjects]), default=0)


def _is_number(text: bytes, number: int) -> bool:
    """Whether digits write a number; they may be more than Python converts."""
    return text.isdigit() and (text.lstrip(b"0") or b"0") == str(number).encode()
