"""Plain model of a server that takes publishes and expires messages, event by event over a list of held messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from retention.core.units import SECOND
from retention.rules.replay.limits import ReplayLimits
from retention.schemas.deadlines import NEVER

MARKER = "marker"
Fate = tuple[Any, ...]
CODES = {"messages": 10077, "bytes": 10077, "subject": 10077}


@dataclass
class Kept:
    """A message that the model holds."""

    seq: int
    row: int | None
    subject: str
    size: int
    ts_ns: int
    deadline_ns: int | None
    silent: bool


@dataclass
class ReplayModel:
    """A server: its held messages in order, its clock, its memory of ids, and the fates so far."""

    limits: ReplayLimits
    rows: list[dict[str, Any]]
    held: list[Kept] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Sequence of a message whose marker was refused → the instant of the next try, and its rule."""
    now_ns: int = -(2**62)
    last_seq: int = 0
    shift: int = 0

    def run(self, until_ns: int) -> None:
        """Take all publishes, and let messages expire until an instant."""
        self.last_seq = self.rows[0]["seq"] - 1 if self.rows else 0
        for number, row in enumerate(self.rows):
            if max(each["ts_ns"] for each in self.rows[: number + 1]) > until_ns:
                break
            self.advance(max(self.now_ns, row["ts_ns"]))
            if not self.publish(number, row):
                self.shift -= 1
        self.advance(until_ns)
        for each in self.held:
            self.end(each, "kept", None, None)

    def advance(self, to_ns: int) -> None:
        """Expire everything due until an instant, instant by instant."""
        while (due := self.next_ns()) <= to_ns:
            self.now_ns = max(self.now_ns, due)
            tried = set()
            for seq in sorted(self.refused, key=lambda seq: (self.refused[seq][0], seq)):
                at_ns, rule = self.refused[seq]
                if at_ns <= self.now_ns:
                    del self.refused[seq]
                    tried.add(seq)
                    self.expire(seq, rule)
            while (old := self.oldest()) and self.age_ends(old) <= self.now_ns:
                tried.add(old.seq)
                self.expire(old.seq, "max_age")
            for each in self.over(tried):
                self.expire(each.seq, "msg_ttl")
        self.now_ns = max(self.now_ns, to_ns)

    def over(self, tried: set[int]) -> list[Kept]:
        """The messages with a deadline that is over, and without a refused marker."""
        return [
            each
            for each in self.held
            if self.limits.expires
            and each.deadline_ns is not None
            and each.deadline_ns <= self.now_ns
            and each.seq not in tried
            and each.seq not in self.refused
        ]

    def next_ns(self) -> int:
        """The instant of the next expiry."""
        due = [at_ns for at_ns, _ in self.refused.values()]
        if old := self.oldest():
            due.append(self.age_ends(old))
        if self.limits.expires:
            due += [
                each.deadline_ns
                for each in self.held
                if each.deadline_ns not in (None, NEVER) and each.seq not in self.refused
            ]
        return min(due, default=2**62)

    def oldest(self) -> Kept | None:
        """The message at which the age scan stands."""
        if self.limits.max_age_ns is None:
            return None
        for each in self.held:
            if each.deadline_ns != NEVER and each.seq not in self.refused:
                return each
        return None

    def age_ends(self, message: Kept) -> int:
        """The instant at which a message is too old."""
        return message.ts_ns + (self.limits.max_age_ns or 0)

    def expire(self, seq: int, rule: str) -> None:
        """Remove a message, or put a marker in its place, or keep it if the marker is refused."""
        found = [each for each in self.held if each.seq == seq]
        if not found:
            return
        (message,) = found
        others = [
            each
            for each in self.held
            if each.subject == message.subject and each.seq not in self.refused
        ]
        ttl_ns = self.limits.marker_ttl_ns
        if ttl_ns is None or message.silent or len(others) > 1:
            self.remove(message, rule, None)
            return
        size = self.limits.marker_bytes + len(message.subject.encode())
        if self.limits.refuses_markers or self.full(message.subject, size, rollup=True):
            self.refused[seq] = (self.now_ns + 2 * SECOND, rule)
            return
        self.shift += 1
        marker = Kept(
            self.last_seq + 1,
            None,
            message.subject,
            size,
            self.now_ns,
            self.now_ns + ttl_ns,
            silent=True,
        )
        self.store(marker, message, rule)
        if message in self.held:
            self.remove(message, rule, marker.seq)
        for each in [*self.held]:
            if each.subject == message.subject and each.seq < marker.seq:
                self.remove(each, "rollup", marker.seq)

    def publish(self, number: int, row: dict[str, Any]) -> bool:
        """Answer a publish; whether it was stored."""
        if row["early"]:
            self.fates.append((number, "refused", row["early"]))
            return False
        known = self.ids.get(row["msg_id"] or "")
        if known and self.now_ns - known[1] < self.limits.duplicate_window_ns:
            self.fates.append((number, "duplicate", known[0]))
            return False
        refusal = row["late"] or self.full(row["subject"], row["size"], rollup=row["rollup"] > 0)
        if refusal:
            self.fates.append((number, "refused", refusal))
            return False
        message = Kept(
            row["seq"] + self.shift,
            number,
            row["subject"],
            row["size"],
            row["ts_ns"],
            row["deadline_ns"],
            row["silent"],
        )
        self.store(message)
        for each in [*self.held]:
            older = each.seq < message.seq and row["rollup"]
            if older and (row["rollup"] == 2 or each.subject == message.subject):
                self.remove(each, "rollup", message.seq)
        if row["msg_id"]:
            self.ids[row["msg_id"]] = (message.seq, self.now_ns)
        return True

    def full(self, subject: str, size: int, *, rollup: bool) -> int:
        """The code by which `discard: new` refuses a message; 0: it has room."""
        limits, same = self.limits, [each for each in self.held if each.subject == subject]
        if not limits.refuses_new:
            return 0
        cap = limits.max_msgs_per_subject
        capped = cap is not None and len(same) >= cap
        if capped and limits.refuses_per_subject and not rollup:
            return 10077
        if limits.max_msgs is not None and len(self.held) >= limits.max_msgs and not capped:
            return 10077
        total = sum(each.size for each in self.held) + size
        if limits.max_bytes is not None and total > limits.max_bytes:
            return 0 if capped and same[0].size >= size else 10077
        return 0

    def store(self, message: Kept, expired: Kept | None = None, rule: str = "") -> None:
        """Append a message and trim; `rule` is that of the message that expired meanwhile."""
        self.held.append(message)
        self.last_seq = message.seq
        limits = self.limits

        def drop(victim: Kept, why: str) -> None:
            self.remove(victim, rule if victim is expired else why, message.seq)

        while limits.max_msgs_per_subject is not None:
            same = [each for each in self.held if each.subject == message.subject]
            if len(same) <= limits.max_msgs_per_subject:
                break
            drop(same[0], "max_msgs_per_subject")
        if limits.refuses_new:
            return
        while limits.max_msgs is not None and len(self.held) > limits.max_msgs:
            drop(self.held[0], "max_msgs")
        while limits.max_bytes is not None and sum(e.size for e in self.held) > limits.max_bytes:
            drop(self.held[0], "max_bytes")

    def remove(self, message: Kept, rule: str, by_seq: int | None) -> None:
        """Remove a held message."""
        self.held.remove(message)
        self.refused.pop(message.seq, None)
        self.end(message, "removed", rule, by_seq)

    def end(self, message: Kept, fate: str, rule: str | None, by_seq: int | None) -> None:
        """Note the fate of a stored message."""
        at_ns = self.now_ns if fate == "removed" else None
        name = MARKER if message.row is None else message.row
        self.fates.append((name, fate, message.seq, rule, at_ns, by_seq))


def fates_of(table: pa.Table) -> list[Fate]:
    """Fates of the shape `FATES` in the form of the model, for streams whose first sequence is the first row's."""
    fates: list[Fate] = []
    number = -1
    for row in table.to_pylist():
        number += row["seq"] is not None
        name = MARKER if row["seq"] is None else number
        if row["fate"] == "refused":
            fates.append((name, "refused", row["code"]))
        elif row["fate"] == "duplicate":
            fates.append((name, "duplicate", row["by_server_seq"]))
        else:
            rule, at_ns, by_seq = row["reason"], row["removed_ns"], row["by_server_seq"]
            fates.append((name, row["fate"], row["server_seq"], rule, at_ns, by_seq))
    return sorted(fates, key=str)
