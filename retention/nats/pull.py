"""An ephemeral pull consumer with ack policy none: requests in flight, and what ends them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import pyarrow as pa

from retention.errors import RetentionError, VerificationError
from retention.nats.api import create_consumer, delete_consumer
from retention.nats.collector import Status
from retention.nats.connection import Connection
from retention.nats.deliveries import MESSAGES, decode, pending_after

IN_FLIGHT = 2
REQUEST_MESSAGES = 50_000
REQUEST_BYTES = 8 << 20
"""A server closes a connection that has 64 MiB before it unread (its `max_pending`, lower at some)."""
EXPIRES_S = 5.0
SILENT_S = 10.0
"""Longer than a request lives: when nothing at all came for this long, the requests are lost."""
_NS = 10**9
_ENDED_BY_SIZE = "Exceeds MaxBytes"
_ENDED_WELL = ("Batch Completed", _ENDED_BY_SIZE)
_NOTHING_THERE = ("404", "408")


@dataclass(frozen=True)
class Limits:
    """The most that a batch holds; one message is always taken."""

    messages: int
    bytes: int
    """Bytes of frames as they come: subjects, replies, headers and payloads."""


@dataclass(frozen=True)
class Wait:
    """The time in which a batch is to be taken, full or not; seconds from the beginning of its wait."""

    least: float
    """No earlier, unless it is full."""
    most: float
    """No later, even if the server has more."""

    def left(self, elapsed: float, *, is_all_here: bool) -> float:
        """The seconds that are left to wait; none if the server has no more."""
        until = self.least if elapsed < self.least or is_all_here else self.most
        return until - elapsed


class Ended(Enum):
    """The reason why no more is waited for."""

    FULL = auto()
    """A batch is complete."""
    REACHED = auto()
    """The stream had nothing more, or the last wanted sequence is here."""
    QUIET = auto()
    """The time is over."""
    LOST = auto()
    """The connection or the consumer is gone, or silent."""


@dataclass
class _Request:
    left: int
    size: int


class Pull:
    """One consumer from one sequence on; a new one takes its place when it is lost."""

    def __init__(self, connection: Connection, stream: str, limits: Limits) -> None:
        self._connection = connection
        self._stream = stream
        self._limits = limits
        self._changed = asyncio.Event()
        self._requests: dict[int, _Request] = {}
        self._asked = 0
        self._name = ""
        self._counted = 0
        self._next_delivery = 1
        self._is_next_large = False
        self._found_nothing = False
        self._last = (0, 1)
        """The last delivery: its sequence, and the messages that were pending after it."""
        self.gone: str | None = None
        """The reason why the consumer gives no more."""
        self.pending = 0
        """Messages at or above its first sequence when it was made."""

    async def open(self, first: int) -> None:
        """Make the consumer."""
        client = self._connection.client
        self._losses = self._connection.losses
        self._inbox = client.new_inbox()
        self._subscription = await client.subscribe(f"{self._inbox}.*")
        self._here = client.collect(self._subscription, self._changed.set)
        self._connection.on_loss = self._changed.set
        try:
            self._name, self.pending = await create_consumer(self._connection, self._stream, first)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Delete the consumer if the server can be reached; else it deletes it itself, soon."""
        client = self._connection.client
        client.frames.stop()
        self._connection.on_loss = _nothing
        with contextlib.suppress(Exception):
            await self._subscription.unsubscribe()
        if self._name and client.is_connected and client.is_reading:
            with contextlib.suppress(RetentionError):
                await delete_consumer(self._connection, self._stream, self._name)

    async def fill(self, last: int | None, wait: Wait | None) -> Ended:
        """Wait until a batch can be taken.

        Args:
            last: the last sequence that is wanted, and the end of the stream is an end; None: for ever.
            wait: the time in which it is to be taken; None: until something ends it.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            self._changed.clear()
            ended = self._state(last)
            if ended is not None:
                return ended
            left = SILENT_S
            if wait is not None:
                left = wait.left(loop.time() - begun, is_all_here=self._is_all_here())
                if left <= 0:
                    return Ended.QUIET
            await self._ask()
            if not await self._change(min(left, SILENT_S)) and left >= SILENT_S:
                self.gone = f"nothing came for {SILENT_S:g} s"

    async def _change(self, within_s: float) -> bool:
        """Whether anything came in time."""
        try:
            await asyncio.wait_for(self._changed.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def take(self) -> pa.Table:
        """The next batch, of shape `MESSAGES`; it may be empty.

        Raises:
            LostDeliveryError: A delivery is missing.
        """
        frames = self._connection.client.frames
        count = self._here.count
        if not count:
            return MESSAGES.empty_table()
        if frames.num_bytes > self._limits.bytes:
            count = max(1, self._here.within(self._limits.bytes) - 1)
        batch = decode(frames.take(min(count, self._limits.messages)))
        numbers, first = batch.consumer_seqs, self._next_delivery
        self._next_delivery += len(numbers)
        if (numbers != np.arange(first, self._next_delivery)).any():
            raise LostDeliveryError(
                f"deliveries {first} to {self._next_delivery - 1} of {self._stream} have other numbers"
            )
        self._last = batch.messages.column("seq")[-1].as_py(), batch.pending
        return batch.messages

    def has_reached(self, last: int | None) -> bool:
        """Whether `last`, or the end of the stream as it was then, is here or was taken."""
        return last is not None and (self._is_all_here() or self._last[0] >= last)

    def _is_all_here(self) -> bool:
        """Whether the last delivery was the end of the stream as it was then."""
        if self._here.count:
            self._last = pending_after(self._connection.client.frames.last_reply())
        return not self._last[1]

    @property
    def is_full(self) -> bool:
        """Whether a whole batch is here."""
        frames = self._connection.client.frames
        enough = self._here.count >= self._limits.messages
        return enough or frames.num_bytes >= self._limits.bytes

    def _state(self, last: int | None) -> Ended | None:
        self._settle()
        if self._connection.losses != self._losses:
            return Ended.LOST
        self._connection.check_permissions()
        if self._here.strange_reply is not None:
            raise VerificationError(
                f"{self._stream}: a delivery came with the reply {self._here.strange_reply!r}, which has no sequence; "
                "read the stream in the account that it belongs to"
            )
        if self.is_full:
            return Ended.FULL
        if self.has_reached(last):
            return Ended.REACHED
        return Ended.LOST if self.gone or (last is not None and self._found_nothing) else None

    def _settle(self) -> None:
        """Find the requests that have ended: by their count, or by a control message."""
        for status in self._here.statuses:
            self._count(status.before)
            self._end(status)
        self._here.statuses.clear()
        self._count(self._here.received)

    def _count(self, received: int) -> None:
        new, self._counted = received - self._counted, received
        while new > 0 and self._requests:
            number, request = next(iter(self._requests.items()))
            served = min(new, request.left)
            request.left -= served
            new -= served
            if not request.left:
                del self._requests[number]

    def _end(self, status: Status) -> None:
        request = self._requests.pop(int(status.subject.rsplit(".", 1)[1]), None)
        _, code, *text = [*status.line.split(" ", 2), ""]
        if code in _NOTHING_THERE:
            self._found_nothing = True
        elif not any(end in text[0] for end in _ENDED_WELL):
            self.gone = status.line.removeprefix("NATS/1.0 ")
        elif _ENDED_BY_SIZE in text[0] and request and request.left == request.size:
            self._is_next_large = True

    async def _ask(self) -> None:
        """Keep requests in flight; for a message larger than a request may be, one alone without that limit."""
        if self._is_next_large:
            if not self._requests:
                self._is_next_large = False
                await self._send(1, None)
            return
        while len(self._requests) < IN_FLIGHT:
            await self._send(min(REQUEST_MESSAGES, self._limits.messages), REQUEST_BYTES)

    async def _send(self, messages: int, max_bytes: int | None) -> None:
        self._asked += 1
        self._requests[self._asked] = _Request(messages, messages)
        body: dict[str, int] = {"batch": messages, "expires": int(EXPIRES_S * _NS)}
        if max_bytes is not None:
            body["max_bytes"] = max_bytes
        subject = self._connection.api_subject(f"CONSUMER.MSG.NEXT.{self._stream}.{self._name}")
        reply = f"{self._inbox}.{self._asked}"
        await self._connection.client.publish(subject, json.dumps(body).encode(), reply)


class LostDeliveryError(VerificationError):
    """The numbers of a consumer's deliveries have a gap."""


def _nothing() -> None:
    """For callbacks that nobody waits for."""
