"""Entries: every message that a replayed server stored, in its order, and those that it holds at the moment."""

from __future__ import annotations

from array import array
from collections import deque

import numpy as np

from retention.rules.replay.fates import STAYS, Outcome


class Entries:
    """The messages stored so far; each is named by its place in the server's order, and removed at most once."""

    def __init__(self) -> None:
        self.rows = array("q")
        self.seqs = array("q")
        self.stored_ns = array("q")
        self.subjects = array("q")
        self.sizes = array("q")
        self.times = array("q")
        self.messages, self.bytes = 0, 0
        self.changes = 0
        """The number of additions and removals."""
        self._places = array("q")
        self._rules = array("q")
        self._removed_ns = array("q")
        self._by = array("q")
        self._head = 0
        self._on_subject: dict[int, deque[int]] = {}
        """Subject → its entries, of which removed ones are dropped when they come to an end."""
        self._count: dict[int, int] = {}
        self._waiting: set[int] = set()
        """The entries that expired and stay, because their marker was refused."""
        self._waiting_on: dict[int, int] = {}

    def add(
        self, row: int, place: int, seq: int, subject: int, size: int, instants: tuple[int, int]
    ) -> int:
        """Add a message at the end; `instants` are its own time and that of its storing."""
        entry = len(self.seqs)
        self.rows.append(row)
        self._places.append(place)
        self.seqs.append(seq)
        self.subjects.append(subject)
        self.sizes.append(size)
        self.times.append(instants[0])
        self.stored_ns.append(instants[1])
        self._rules.append(STAYS)
        self._removed_ns.append(STAYS)
        self._by.append(0)
        self._on_subject.setdefault(subject, deque()).append(entry)
        self._count[subject] = self._count.get(subject, 0) + 1
        self.messages += 1
        self.bytes += size
        self.changes += 1
        return entry

    def is_held(self, entry: int) -> bool:
        """Whether a message was not removed yet."""
        return self._rules[entry] == STAYS

    def remove(self, entry: int, rule: int, at_ns: int, by_seq: int = 0) -> None:
        """Remove a held message."""
        self._rules[entry], self._removed_ns[entry], self._by[entry] = rule, at_ns, by_seq
        self._count[self.subjects[entry]] -= 1
        self.messages -= 1
        self.bytes -= self.sizes[entry]
        self.changes += 1
        self.resume(entry)

    def blame(self, entry: int, rule: int) -> None:
        """Give a removed message another rule, which would have removed it at the same instant."""
        self._rules[entry] = rule

    def wait(self, entry: int) -> None:
        """Note that a message expired and stays, because its marker was refused."""
        self._waiting.add(entry)
        subject = self.subjects[entry]
        self._waiting_on[subject] = self._waiting_on.get(subject, 0) + 1

    def resume(self, entry: int) -> None:
        """Forget that a message waits for its marker, if it does."""
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._waiting_on[self.subjects[entry]] -= 1

    def waits(self, entry: int) -> bool:
        """Whether a message waits for its marker."""
        return entry in self._waiting

    def count(self, subject: int) -> int:
        """The number of held messages of a subject."""
        return self._count.get(subject, 0)

    def is_last(self, entry: int) -> bool:
        """Whether every other held message of its subject waits for its own marker."""
        subject = self.subjects[entry]
        return self.count(subject) - self._waiting_on.get(subject, 0) <= 1

    def head(self) -> int:
        """The held message with the lowest sequence; the number of all entries if none is held."""
        rules = self._rules
        while self._head < len(rules) and rules[self._head] != STAYS:
            self._head += 1
        return self._head

    def first_of(self, subject: int) -> int:
        """The held message of a subject with the lowest sequence; it has one."""
        entries = self._on_subject[subject]
        while self._rules[entries[0]] != STAYS:
            entries.popleft()
        return entries[0]

    def last_seq_of(self, subject: int) -> int:
        """The highest held sequence of a subject; 0 if it has none."""
        entries = self._on_subject.get(subject)
        while entries and self._rules[entries[-1]] != STAYS:
            entries.pop()
        return self.seqs[entries[-1]] if entries else 0

    def outcome(
        self, codes: np.ndarray, originals: np.ndarray, subject_rows: np.ndarray
    ) -> Outcome:
        """The fates of all entries; `subject_rows` has a row of the publishes for each subject."""
        ints = (self.rows, self._places, self.seqs, self.stored_ns)
        rows, places, seqs, stored = (_int64(each) for each in ints)
        return Outcome(
            codes,
            originals,
            rows,
            places,
            seqs,
            stored,
            subject_rows[_int64(self.subjects)],
            _int64(self.sizes),
            _int64(self._rules).astype(np.int8),
            _int64(self._removed_ns),
            _int64(self._by),
        )


def _int64(numbers: array[int]) -> np.ndarray:
    return np.frombuffer(numbers, dtype=np.int64).copy()
