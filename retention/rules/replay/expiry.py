"""Expiry at its own instants: the messages that age or TTLs end next, and those whose marker was refused."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import chain

from retention.core.units import SECOND
from retention.rules.replay.entries import Entries
from retention.rules.replay.fates import AGE_RULE, TTL_RULE
from retention.schemas.deadlines import NEVER

RETRY_NS = 2 * SECOND
"""The time after which a server tries again to write a marker that it refused."""
NOT_DUE = NEVER
"""The instant of no expiry: later than any."""


class Expiries:
    """The messages that are going to expire."""

    def __init__(self, entries: Entries, max_age_ns: int | None, *, expires: bool) -> None:
        self._entries = entries
        self._max_age_ns, self._expires = max_age_ns, expires
        self._aging: deque[int] = deque()
        """The entries that age may remove, by sequence; a scan stops at the first young one."""
        self._deadlines: list[tuple[int, int]] = []
        self._again: list[tuple[int, int, int]] = []
        """Instant, entry and rule of expiries to try again."""
        self._refused: dict[int, list[tuple[int, int, int]]] = {}
        """Subject → instants, entries and rules of expiries whose markers were refused; nothing has changed since."""

    def add(self, entry: int, deadline_ns: int | None) -> None:
        """Note a stored message and its deadline."""
        if self._max_age_ns is not None and deadline_ns != NEVER:
            self._aging.append(entry)
        if self._expires and deadline_ns is not None and deadline_ns != NEVER:
            heapq.heappush(self._deadlines, (deadline_ns, entry))

    def refused(self, entry: int, rule: int, now_ns: int) -> None:
        """Note a message that stays because its marker was refused: scans pass it over until it is tried again."""
        self._entries.wait(entry)
        self._refused.setdefault(self._entries.subjects[entry], []).append((now_ns, entry, rule))

    @property
    def waits(self) -> bool:
        """Whether a refused marker waits for a change."""
        return bool(self._refused)

    def retry(self, now_ns: int, subject: int | None = None) -> None:
        """Try refused markers again at their next turns, those of one subject or all: something has changed."""
        subjects = [*self._refused] if subject is None else [subject]
        refused = chain.from_iterable(self._refused.pop(each, ()) for each in subjects)
        for tried_ns, entry, rule in refused:
            # The turn of this instant came before whatever has changed at it.
            turns = (now_ns - tried_ns) // RETRY_NS + 1
            heapq.heappush(self._again, (tried_ns + turns * RETRY_NS, entry, rule))

    def next_ns(self) -> int:
        """The instant of the next expiry, which may be over; `NOT_DUE` if none comes."""
        due = self._oldest_due()
        if self._deadlines:
            due = min(due, self._deadlines[0][0])
        if self._again:
            due = min(due, self._again[0][0])
        return due

    def due(self, now_ns: int) -> Iterator[tuple[int, int]]:
        """The entries that expire at an instant, each with its rule, in a server's order; a message may be gone.

        Refused markers are tried again first, then the age scan goes by sequence, then the scan of TTLs.
        """
        while self._again and self._again[0][0] <= now_ns:
            _, entry, rule = heapq.heappop(self._again)
            self._entries.resume(entry)
            yield entry, rule
        while self._oldest_due() <= now_ns:
            yield self._aging.popleft(), AGE_RULE
        passed = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            passed.append(heapq.heappop(self._deadlines)[1])
        for entry in sorted(passed):
            if not self._entries.waits(entry):
                yield entry, TTL_RULE

    def _oldest_due(self) -> int:
        aging, entries = self._aging, self._entries
        while aging and (not entries.is_held(aging[0]) or entries.waits(aging[0])):
            aging.popleft()
        if not aging:
            return NOT_DUE
        return entries.times[aging[0]] + (self._max_age_ns or 0)
