"""The receiving side of a connection: deliveries of one subscription are collected as bytes, all else is the library's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from nats.protocol.parser import Parser

from retention.nats.deliveries import Frames

_LINE_END = b"\r\n"
_MESSAGE = re.compile(
    rb"(?:MSG (?P<subject>\S+) (?P<sid>\d+) (?:(?P<reply>\S+) )?"
    rb"|HMSG (?P<h_subject>\S+) (?P<h_sid>\d+) (?:(?P<h_reply>\S+) )?\d+ )(?P<size>\d+)"
)
_ERROR = b"-ERR"


@dataclass(frozen=True)
class Status:
    """A control message about a pull request."""

    subject: str
    """Where the request wanted its answer."""
    line: str
    """Such as `NATS/1.0 409 Batch Completed`."""
    before: int
    """Deliveries to the subscription that came before it."""


class Collector:
    """The deliveries to one subscription in order, until they are taken."""

    def __init__(self, sid: int) -> None:
        self.sid = sid
        self.marker = b" %d $JS.ACK." % sid
        """The bytes between the subject of a delivery and its reply: a control message has no reply, and its status is
        no sign, as a stored message may have one."""
        self.starts: list[int] = []
        self.marks: list[int] = []
        self.ends: list[int] = []
        self.sizes: list[int] = []
        self.statuses: list[Status] = []
        self.strange_reply: str | None = None
        """Of a message that is neither a delivery nor a control message."""
        self.taken = 0

    def is_mine(self, message: re.Match[bytes]) -> bool:
        """Whether a control line is of this subscription."""
        return int(message["sid"] or message["h_sid"]) == self.sid

    def note(self, message: re.Match[bytes], body: bytes) -> None:
        """Take a message to the subscription that is no delivery."""
        reply = message["reply"] or message["h_reply"]
        if reply is not None:
            self.strange_reply = reply.decode(errors="replace")
            return
        subject = (message["subject"] or message["h_subject"]).decode(errors="replace")
        line = body.split(_LINE_END, 1)[0].decode(errors="replace")
        self.statuses.append(Status(subject, line, self.received))

    @property
    def count(self) -> int:
        """Deliveries that are here."""
        return len(self.starts)

    @property
    def received(self) -> int:
        """Deliveries that came since the beginning."""
        return self.taken + len(self.starts)


class FrameParser(Parser):
    """The client library's parser, with the collected deliveries taken out of what it reads."""

    def __init__(self, client: Any, on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._collector: Collector | None = None
        self._on_change: Callable[[], None] = lambda: None
        super().__init__(client)

    def reset(self) -> None:
        """Forget what came of an unfinished frame: the connection is a new one; deliveries stay."""
        super().reset()
        self._bytes = bytearray()
        self._at = 0
        if self._collector is not None:
            self._collector = Collector(self._collector.sid)

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
        """Collect the deliveries of a subscription from now on; `on_change` is called after any bytes came."""
        self._collector = Collector(sid)
        self._on_change = on_change
        return self._collector

    def stop(self) -> None:
        """Collect no more, and forget what was not taken."""
        self._collector = None
        self._on_change = lambda: None
        self._compact()

    @property
    def num_bytes(self) -> int:
        """Bytes of the deliveries that are here."""
        return self._at

    def last_reply(self) -> bytes:
        """The reply of the last delivery that is here, after `$JS.ACK.`."""
        here = self._here()
        line = self._bytes[here.marks[-1] + len(here.marker) : here.ends[-1]]
        return bytes(line.split(b" ", 1)[0])

    def take(self, count: int) -> Frames:
        """The first deliveries, at most `count`; they are not here afterwards."""
        here = self._here()
        count = min(count, here.count)
        cut = here.starts[count] if count < here.count else self._at
        taken, self._bytes = self._bytes, self._bytes[cut:]
        self._at -= cut
        marks = _cut(here.marks, count, cut)
        frames = Frames(
            taken,
            starts=_cut(here.starts, count, cut),
            replies=marks + len(here.marker),
            marks=marks,
            ends=_cut(here.ends, count, cut),
            sizes=_cut(here.sizes, count, 0),
        )
        here.taken += count
        return frames

    def _here(self) -> Collector:
        if self._collector is None:
            raise AssertionError("nothing is collected")
        return self._collector

    def _collect(self) -> None:
        """Pass over the deliveries at the front of the unread bytes, and note where they are."""
        here = self._collector
        if here is None:
            return
        data, at, total, marker = self._bytes, self._at, len(self._bytes), here.marker
        find, rfind = data.find, data.rfind
        while (end := find(_LINE_END, at)) >= 0:
            mark = find(marker, at, end)
            if mark < 0:
                break
            size = int(data[rfind(b" ", mark, end) + 1 : end])
            after = end + size + 4
            if after > total:
                break
            here.starts.append(at)
            here.marks.append(mark)
            here.ends.append(end)
            here.sizes.append(size)
            at = after
        self._at = at

    def _next_frame(self) -> bytes | None:
        """The next whole frame of another kind; empty for a control message of ours, none if it has not come whole."""
        end = self._bytes.find(_LINE_END, self._at)
        if end < 0:
            return None
        line = bytes(self._bytes[self._at : end])
        after = end + len(_LINE_END)
        message = _MESSAGE.fullmatch(line)
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


def _cut(offsets: list[int], count: int, base: int) -> np.ndarray:
    """Take the first offsets out of a list; the others begin `base` lower."""
    taken = np.array(offsets[:count], np.int64)
    offsets[:] = [offset - base for offset in offsets[count:]] if base else offsets[count:]
    return taken
