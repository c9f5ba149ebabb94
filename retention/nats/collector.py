"""Where the deliveries to one subscription lie in the bytes that came, and the control messages between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from retention.nats.deliveries import Frames

_LINE_END = b"\r\n"
MESSAGE_LINE = re.compile(
    rb"(?:MSG (?P<subject>\S+) (?P<sid>\d+) (?:(?P<reply>\S+) )?"
    rb"|HMSG (?P<h_subject>\S+) (?P<h_sid>\d+) (?:(?P<h_reply>\S+) )?\d+ )(?P<size>\d+)"
)
"""The control line of a message."""


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

    def last_reply(self, data: bytearray) -> bytes:
        """The reply of the last delivery, after `$JS.ACK.`."""
        line = data[self.marks[-1] + len(self.marker) : self.ends[-1]]
        return bytes(line.split(b" ", 1)[0])

    def take(self, data: bytearray, count: int, cut: int) -> Frames:
        """The first deliveries, at most `count`, which lie in `data`; the others begin `cut` bytes lower afterwards."""
        self.taken += min(count, self.count)
        marks = _cut(self.marks, count, cut)
        return Frames(
            data,
            starts=_cut(self.starts, count, cut),
            replies=marks + len(self.marker),
            marks=marks,
            ends=_cut(self.ends, count, cut),
            sizes=_cut(self.sizes, count, 0),
        )

    @property
    def count(self) -> int:
        """Deliveries that are here."""
        return len(self.starts)

    @property
    def received(self) -> int:
        """Deliveries that came since the beginning."""
        return self.taken + len(self.starts)


def _cut(offsets: list[int], count: int, base: int) -> np.ndarray:
    """Take the first offsets out of a list; the others begin `base` lower."""
    taken = np.array(offsets[:count], np.int64)
    offsets[:] = [offset - base for offset in offsets[count:]] if base else offsets[count:]
    return taken
