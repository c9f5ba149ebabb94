"""A stored message by the server's definitions: its size, its deadline, and its properties for rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tests.support.worlds import Message

SECOND = 1_000_000_000
NEVER = 2**63 - 1

TTL, ROLLUP, MSG_ID = "Nats-TTL", "Nats-Rollup", "Nats-Msg-Id"
OPERATION, REASON = "KV-Operation", "Nats-Marker-Reason"
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Stored:
    """A message of a stream; headers are parsed on demand."""

    COLUMNS: ClassVar = (
        "seq",
        "subject",
        "ts_ns",
        "headers",
        "payload",
        "size",
        "deadline_ns",
        "marker",
        "msg_id",
        "origin_ts_ns",
    )
    """Its columns in a data file, except `time`."""
    seq: int
    subject: str
    ts_ns: int
    headers: Headers
    payload: bytes

    @cached_property
    def block(self) -> bytes | None:
        """The stored header block; None without headers."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        return f"NATS/1.0\r\n{lines}\r\n".encode() if lines else None

    @cached_property
    def size(self) -> int:
        """Its bytes by the accounting of a file store."""
        rest = len(self.subject.encode()) + len(self.payload)
        return 30 + rest if self.block is None else 34 + len(self.block) + rest

    @cached_property
    def deadline_ns(self) -> int | None:
        """The instant of expiry; None: no TTL; the largest 64-bit integer: never."""
        ttl = self.value(TTL)
        if ttl is None:
            return None
        seconds = parse_ttl(ttl)
        return NEVER if seconds is None else self.ts_ns + seconds * SECOND

    @cached_property
    def silent(self) -> bool:
        """Whether it expires without a delete marker."""
        return bool(self.value(REASON)) or self.value(OPERATION) == "PURGE"

    @cached_property
    def deletes(self) -> bool:
        """Whether a key-value client reads it as a deletion."""
        return bool(self.value(REASON)) or self.value(OPERATION) in ("DEL", "PURGE")

    @cached_property
    def msg_id(self) -> str | None:
        """Its `Nats-Msg-Id`."""
        return self.value(MSG_ID)

    def value(self, name: str) -> str | None:
        """The value of a header; None without it."""
        return next((value for key, value in self.headers if key == name), None)

    def to_rules(self) -> Message:
        """The message for the plain rules of `worlds.py` and `marked.py`."""
        deadline = self.deadline_ns
        return Message(
            self.seq,
            self.subject,
            self.ts_ns,
            self.size,
            never=deadline == NEVER,
            deadline_ns=None if deadline == NEVER else deadline,
            silent=self.silent,
            deletes=self.deletes,
        )

    def row(self) -> dict[str, Any]:
        """The columns of a data file, by name."""
        renamed = {"headers": self.block, "marker": self.silent, "origin_ts_ns": None}
        return {name: renamed.get(name, getattr(self, name, None)) for name in self.COLUMNS}


def parse_ttl(text: str) -> int | None:
    """The seconds of a `Nats-TTL` in histories: `never` (None), digits, and 1m30s."""
    if text == "never":
        return None
    if text.isdigit():
        return int(text)
    minutes, _, seconds = text.rpartition("m")
    return 60 * int(minutes or 0) + int(seconds.rstrip("s"))


def marker_headers(ttl_s: int) -> Headers:
    """The headers of a subject-delete marker (jetstream.md 4.3)."""
    minutes, seconds = divmod(ttl_s, 60)
    spelled = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    return ((REASON, "MaxAge"), (TTL, spelled), (ROLLUP, "sub"))


def matches(pattern: str, subject: str) -> bool:
    """Whether a filter of literal tokens and `*` matches a subject with the same number of tokens."""
    wanted, tokens = pattern.split("."), subject.split(".")
    return len(wanted) == len(tokens) and all(
        one in ("*", other) for one, other in zip(wanted, tokens, strict=True)
    )
