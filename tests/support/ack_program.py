"""A program that processes messages of a real server, and its log of deliveries and acks."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from tests.support.nats_oracle import TIMEOUT, Nats

SOON = 10**8
"""Nanoseconds without a message after which a fetch gives up, because `max_ack_pending` may be
reached."""


class AckProgram:
    """A client that pulls messages of consumers and answers them; each answer is processed when a call returns."""

    def __init__(self, server: Nats, stream: str, acks: str = "$JS.ACK.>") -> None:
        """Start listening.

        Args:
            server: a real one.
            stream: the stream of the consumers.
            acks: the subjects of its acks; must not match those of another program.
        """
        self._server = server
        self._stream = stream
        self._client = server._client
        self._acks = server._run(self._client.subscribe(acks))
        self.log: list[tuple[str, bytes | None]] = []
        """(reply, body) in order; no body: a delivery."""

    def fetch(self, consumer: str, count: int) -> list[str]:
        """Pull exactly `count` messages; returns their replies."""
        replies = self._server._run(self._fetch(consumer, count))
        self.log += [(reply, None) for reply in replies]
        return replies

    def take(self, consumer: str, count: int) -> list[str]:
        """Pull at most `count` available messages; returns their replies."""
        replies = self._server._run(self._take(consumer, count))
        self.log += [(reply, None) for reply in replies]
        return replies

    def answer(self, reply: str, body: bytes) -> None:
        """Publish a body under a reply, and wait until the server has processed it."""
        self._server._run(self._answer(reply, body))

    def answer_all(self, replies: Sequence[str], body: bytes) -> None:
        """Answer several replies with the same body, in order."""
        for reply in replies:
            self.answer(reply, body)

    def next_after(self, reply: str) -> str:
        """Acknowledge a reply and request the next message (`+NXT`); returns the next reply."""
        following = self._server._run(self._next_after(reply))
        self.log.append((following, None))
        return following

    def columns(self, *, deliveries: bool = True) -> tuple[pa.Array, pa.Array]:
        """The log as replies and bodies, with or without the deliveries."""
        kept = [line for line in self.log if deliveries or line[1] is not None]
        replies = pa.array([reply for reply, _ in kept], pa.string())
        return replies, pa.array([body for _, body in kept], pa.binary())

    async def _fetch(self, consumer: str, count: int) -> list[str]:
        request = {"batch": count, "expires": int(TIMEOUT * 10**9)}
        return await self._ask(self._next_of(consumer), json.dumps(request).encode(), count)

    async def _take(self, consumer: str, count: int) -> list[str]:
        asked = {"batch": count, "no_wait": True, "expires": SOON}
        request = json.dumps(asked).encode()
        inbox = self._client.new_inbox()
        arriving = await self._client.subscribe(inbox)
        await self._client.publish(self._next_of(consumer), request, reply=inbox)
        replies: list[str] = []
        while len(replies) < count:
            arrived = await arriving.next_msg(timeout=TIMEOUT)
            if not arrived.reply:  # a status: no more messages
                break
            replies.append(str(arrived.reply))
        await arriving.unsubscribe()
        return replies

    def _next_of(self, consumer: str) -> str:
        return f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}"

    async def _ask(self, subject: str, request: bytes, count: int) -> list[str]:
        inbox = self._client.new_inbox()
        arriving = await self._client.subscribe(inbox)
        await self._client.publish(subject, request, reply=inbox)
        arrived = [await arriving.next_msg(timeout=TIMEOUT) for _ in range(count)]
        await arriving.unsubscribe()
        return [str(message.reply) for message in arrived]

    async def _answer(self, reply: str, body: bytes) -> None:
        await self._client.request(reply, body, timeout=TIMEOUT)
        await self._capture()

    async def _next_after(self, reply: str) -> str:
        following = await self._ask(reply, b"+NXT", 1)
        await self._capture()
        return following[0]

    async def _capture(self) -> None:
        ack = await self._acks.next_msg(timeout=TIMEOUT)
        self.log.append((ack.subject, ack.data))
