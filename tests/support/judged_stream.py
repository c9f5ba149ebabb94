"""A stream on a real server with stepwise acts of consumers, and its content before and after each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from retention.config.checks.consumer_filters import filters_of
from retention.consumers.ack_subject import DELIVERED, SETTLING, parse
from retention.core.subjects import matches
from retention.formats.nats.backup import read_backup
from tests.support.ack_program import AckProgram
from tests.support.nats_oracle import Json, Nats

What = Literal["worked", "edited", "dropped", "switched", "restored", "restarted"]
SECOND = 1_000_000_000
HOUR = 3600 * SECOND
SOON_S = 0.2
"""`ack_wait` is an hour or this long; to trigger a redelivery, more time must pass."""
QUIET_S = 0.1
"""The delay before a server releases deliveries of consumers without acks."""


@dataclass(frozen=True)
class Step:
    """An event on a server between two backups of a stream."""

    stream: str
    number: int
    """The number of the step."""
    what: What
    config: Json
    """The stream's configuration, with the retention in effect."""
    before: Path
    """The backup with the messages."""
    states: Path
    """The backup with the deciding states of consumers."""
    after: Path
    held: tuple[int, ...]
    """The sequences kept by the server."""
    given: frozenset[tuple[str, int]]
    """Consumer and sequence of all deliveries so far."""
    settled: frozenset[tuple[str, int]]
    """Consumer and sequence of all settling answers so far."""
    forsaken: frozenset[int]
    """Sequences abandoned by consumers edited or deleted since."""
    passed_over: frozenset[tuple[str, int]]
    """Consumer and sequence of messages that its filters match only since an edit, below its position."""
    was_limited: bool
    """Whether the stream started with `retention: limits`."""


class JudgedStream:
    """One stream on a real server; messages have the subject `<its name>.<kind>`."""

    def __init__(self, nats: Nats, name: str, retention: str, folder: Path) -> None:
        """Create the stream; its backups are written to `folder`."""
        self.steps: list[Step] = []
        self.name = name
        self.consumers: dict[str, Json] = {}
        self._nats, self._folder, self._backups = nats, folder, 0
        asked = {"name": name, "subjects": [f"{name}.>"], "retention": retention}
        self.config: Json = nats.request(f"STREAM.CREATE.{name}", asked)["config"]
        self._was_limited = retention == "limits"
        self._forsaken: frozenset[int] = frozenset()
        self._passed_over: frozenset[tuple[str, int]] = frozenset()
        self._program = AckProgram(nats, name, f"$JS.ACK.{name}.>")

    def publish(self, kinds: Sequence[str]) -> None:
        self._nats.publish([(f"{self.name}.{kind}", b"x", None) for kind in kinds])

    def held(self) -> tuple[int, ...]:
        return tuple(message.seq for message in self._nats.survivors(self.name))

    def delete_message(self, seq: int) -> None:
        self._nats.request(f"STREAM.MSG.DELETE.{self.name}", {"seq": seq})

    def consumer(self, name: str, kinds: Sequence[str], /, **settings: object) -> None:
        """Create a consumer of messages of these kinds, or update it.

        Raises:
            ServerError: the server refuses it.
        """
        filters = [f"{self.name}.{kind}" for kind in kinds]
        config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": HOUR, **settings}
        config.pop("filter_subject", None)
        asked = {"stream_name": self.name, "config": config | {"filter_subjects": filters}}
        made = self._nats.request(f"CONSUMER.CREATE.{self.name}.{name}", asked)
        self.consumers[name] = made["config"]

    def take(self, consumer: str, count: int) -> list[str]:
        """Fetch up to `count` messages; returns the replies of those available."""
        return self._program.take(consumer, count)

    def answer(self, replies: Sequence[str], body: bytes = b"+ACK") -> None:
        self._program.answer_all(replies, body)

    def drop(self, consumer: str) -> None:
        self._nats.request(f"CONSUMER.DELETE.{self.name}.{consumer}", {})
        del self.consumers[consumer]

    def switch(self) -> None:
        self.config = self._nats.update(self.config | {"retention": "interest"})["config"]

    def restore(self) -> None:
        """Delete the stream, and restore it from its last backup."""
        state = self._nats.info(self.name)["state"]
        self._nats.delete(self.name)
        self._nats.restore_archive(self.config, state, self._backup_path())

    def step(self, what: What, happens: Callable[[], object]) -> None:
        """Execute an act between two backups."""
        before = self.backup()
        happens()
        time.sleep(QUIET_S)
        self._record(what, before)

    def restarted(self, nats: Nats, before: Path) -> None:
        """Continue on a server that found the stream in its store, in the state of a backup."""
        self._nats = nats
        self._record("restarted", before)

    def backup(self) -> Path:
        """Back the stream up."""
        self._backups += 1
        self._nats.snapshot(self.name, self._backup_path())
        return self._backup_path()

    def _record(self, what: What, before: Path) -> None:
        held, after = self.held(), self.backup()
        if what in ("edited", "dropped"):
            self._forsaken |= _given_up(before, after)
            self._passed_over |= _wanted_since(before, after)
        if self.config["retention"] == "limits":
            return
        given, settled = self._told()
        self.steps.append(
            Step(
                stream=self.name,
                number=len(self.steps),
                what=what,
                config=self.config,
                before=before,
                states=after if what in ("worked", "edited", "dropped") else before,
                after=after,
                held=held,
                given=given,
                settled=settled,
                forsaken=self._forsaken,
                passed_over=self._passed_over,
                was_limited=self._was_limited,
            )
        )

    def _backup_path(self) -> Path:
        return self._folder / f"{self.name}-{self._backups}"

    def _told(self) -> tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]]:
        acks, _ = parse(*self._program.columns())
        lines = acks.select(["verb", "consumer", "seq"]).to_pylist()
        given = frozenset(
            (one["consumer"], one["seq"]) for one in lines if one["verb"] == DELIVERED
        )
        settled = frozenset(
            (one["consumer"], one["seq"]) for one in lines if one["verb"] in SETTLING
        )
        return given, settled


def _given_up(before: Path, after: Path) -> frozenset[int]:
    """Redelivered messages of consumers that were deleted or replaced afterwards."""
    now = read_backup(after).consumers
    return frozenset(
        int(seq)
        for name, was in read_backup(before).consumers.items()
        if name not in now or now[name]["config"] != was["config"]
        for seq in was["state"].get("redelivered") or ()
    )


def subjects_in(backup: Path) -> dict[int, str]:
    """Sequence → subject of every message of a backup."""
    return {
        row["seq"]: row["subject"]
        for batch in read_backup(backup).batches()
        for row in batch.select(["seq", "subject"]).to_pylist()
    }


def _wanted_since(before: Path, after: Path) -> frozenset[tuple[str, int]]:
    """Messages that consumers' filters match only after an edit."""
    was = read_backup(before).consumers
    return frozenset(
        (name, seq)
        for name, now in read_backup(after).consumers.items()
        if name in was and was[name]["config"] != now["config"]
        for seq, subject in subjects_in(before).items()
        if _is_for(now["config"], subject) and not _is_for(was[name]["config"], subject)
    )


def _is_for(config: Json, subject: str) -> bool:
    filters = filters_of(config)
    return not filters or any(matches(one, subject) for one in filters)
