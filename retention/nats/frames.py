"""Frames of a connection: deliveries of one subscription are collected as bytes, all else is the library's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nats.protocol.parser import Parser

from retention.errors import UsageError
from retention.nats.collector import MESSAGE_LINE, Collector
from retention.nats.deliveries import Frames

_LINE_END = b"\r\n"
_ERROR = b"-ERR"


class FrameParser(Parser):
    """The client library's parser, with the collected deliveries taken out of what it reads."""

    def __init__(self, client: Any, on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._collector: Collector | None = None
        self._on_change: Callable[[], None] = lambda: None
        super().__init__(client)

    def reset(self) -> None:
        """Forget what came of an unfinished frame: and what was not taken: the connection is a new one."""
        super().reset()
        self._bytes = bytearray()
        self._at = 0
        if self._collector is not None:
            self._collector.clear()

    async def parse(self, data: bytes = b"") -> None:
        """Take the next bytes of the connection."""
        self._bytes += data
        while True:
            self._collect()
            frame = self._next_frame()
            if frame is None:
                break
            if frame:
                await super().parse(frame)
        self._compact()
        self._on_change()

    def collect(self, sid: int, on_change: Callable[[], None]) -> Collector:
        """Collect the deliveries of a subscription from now on; `on_change` is called after any bytes came.

        Raises:
            UsageError: Another reader is at work on the connection.
        """
        if self._collector is not None:
            raise UsageError(
                "a stream is being read on this connection already; end that reader, or open another connection"
            )
        self._collector = Collector(sid)
        self._on_change = on_change
        return self._collector

    def stop(self) -> None:
        """Collect no more, and forget what was not taken."""
        self._collector = None
        self._on_change = lambda: None
        # A search that a signal interrupted may still hold the buffer, which then cannot be resized.
        self._bytes, self._at = self._bytes[self._at :], 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the deliveries that are here."""
        return self._at

    def last_reply(self) -> bytes:
        """The reply of the last delivery that is here, after `$JS.ACK.`."""
        return self._here().last_reply(self._bytes)

    def take(self, count: int) -> Frames:
        """The first deliveries, at most `count`; they are not here afterwards."""
        here = self._here()
        cut = here.start_of(count) if count < here.count else self._at
        taken, self._bytes = self._bytes, self._bytes[cut:]
        self._at -= cut
        return here.take(taken, count, cut)

    def _here(self) -> Collector:
        if self._collector is None:
            raise AssertionError("nothing is collected")
        return self._collector

    def _collect(self) -> None:
        """Pass over the deliveries at the front of the unread bytes, and note where they are."""
        if self._collector is not None:
            self._at = self._collector.find(self._bytes, self._at)

    def _next_frame(self) -> bytes | None:
        """The next whole frame of another kind; empty for a control message of ours, none if it has not come whole."""
        end = self._bytes.find(_LINE_END, self._at)
        if end < 0:
            return None
        line = bytes(self._bytes[self._at : end])
        after = end + len(_LINE_END)
        message = MESSAGE_LINE.fullmatch(line)
        if message:
            after += int(message["size"]) + len(_LINE_END)
            if after > len(self._bytes):
                return None
        frame = bytes(self._bytes[self._at : after])
        self._at = after
        here = self._collector
        if message and here is not None and here.is_mine(message):
            here.note(message, frame[len(line) + len(_LINE_END) :])
            return b""
        if line.startswith(_ERROR):
            self._on_error(line[len(_ERROR) :].decode(errors="replace").strip(" '"))
        return frame

    def _compact(self) -> None:
        """Forget the bytes that were passed over, unless deliveries are among them."""
        if self._collector is None or not self._collector.count:
            del self._bytes[: self._at]
            self._at = 0
