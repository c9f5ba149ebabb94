"""Places of the deliveries to one subscription in the bytes that came, and the control messages between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from retention.nats.deliveries import Frames
from retention.nats.places import AFTER, END, MARK, NO_PLACES, START, TRAILER, find_deliveries

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
    """The reply subject of the request."""
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
        self._places: list[np.ndarray] = []
        self.count = 0
        """Deliveries that are here."""
        self.statuses: list[Status] = []
        self.strange_reply: str | None = None
        """Of a message that is neither a delivery nor a control message."""
        self.taken = 0

    def clear(self) -> None:
        """Forget what was not taken."""
        self._places.clear()
        self.statuses.clear()
        self.count = 0

    def find(self, data: bytearray, at: int) -> int:
        """Note the deliveries at the front of `data[at:]`; returns the offset after them."""
        places = find_deliveries(data, at, self.marker)
        if not len(places):
            return at
        self._places.append(places)
        self.count += len(places)
        return int(places[-1, AFTER])

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
        last = self._places[-1][-1]
        line = data[last[MARK] + len(self.marker) : last[END]]
        return bytes(line.split(b" ", 1)[0])

    def within(self, limit: int) -> int:
        """The number of deliveries that begin at or before an offset."""
        return int(np.searchsorted(self._joined()[:, START], limit, side="right"))

    def start_of(self, number: int) -> int:
        """The begin of a delivery that is here."""
        return int(self._joined()[number, START])

    def take(self, data: bytearray, count: int, cut: int) -> Frames:
        """The first deliveries, at most `count`, which lie in `data`; the others begin `cut` bytes lower afterwards."""
        places = self._joined()
        taken, left = places[:count], places[count:] - cut
        self._places = [left] if len(left) else []
        self.taken += len(taken)
        self.count = len(left)
        return Frames(
            data,
            starts=taken[:, START],
            replies=taken[:, MARK] + len(self.marker),
            marks=taken[:, MARK],
            ends=taken[:, END],
            sizes=taken[:, AFTER] - taken[:, END] - TRAILER,
        )

    @property
    def received(self) -> int:
        """Deliveries that came since the beginning."""
        return self.taken + self.count

    def _joined(self) -> np.ndarray:
        """The places of all deliveries that are here."""
        if len(self._places) != 1:
            self._places = [np.concatenate([NO_PLACES, *self._places])]
        return self._places[0]
