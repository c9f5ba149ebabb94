"""Random acts of consumers on a stream of a real server: work, edits, deletions, recreation."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.support.judged_stream import HOUR, SECOND, SOON_S, JudgedStream
from tests.support.nats_oracle import ServerError

ROUNDS = 3
KINDS = ("a", "b", "x.y", "é")
FILTERS = ((), (">",), ("a",), ("b",), ("*",), ("a", "x.>"), ("b", "é"))
SHARES = (
    ((),),
    (("a",), ("b",)),
    (("a", "b"), ("x.>",)),
    (("*",), ("x.*",)),
    (("a",), ("b", "é"), ("x.y",)),
)
"""The filters of consumers that share a work queue."""
OVERLAPS = (10099, 10100)
"""A server's error codes for an overlapping consumer of a work queue."""
BODIES = (b"+ACK", b"+ACK", b"+ACK", b"", b"-NAK", b"-NAK", b"+WPI", b"+TERM", b"nonsense")
STARTS: tuple[dict[str, Any], ...] = (
    {"deliver_policy": "all"},
    {"deliver_policy": "all"},
    {"deliver_policy": "all"},
    {"deliver_policy": "new"},
    {"deliver_policy": "last"},
    {"deliver_policy": "last_per_subject"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 7},
)


class RandomConsumers:
    """The random consumers of one stream."""

    def __init__(self, stream: JudgedStream, chance: random.Random) -> None:
        """Start without consumers."""
        self._stream, self._chance = stream, chance
        self._share = chance.choice(SHARES)
        self._replies: dict[str, list[str]] = {}
        self._made = 0

    def live(self) -> None:
        """Run several rounds; a stream with limits changes to interest in the second one; finally restore it."""
        stream = self._stream
        for number in range(ROUNDS):
            for _ in range(self._chance.randint(number == 0, len(self._share))):
                self._add()
            stream.publish(self._chance.choices(KINDS, k=self._chance.randint(3, 12)))
            for _ in range(self._chance.randint(0, 2)):
                self._add()
            held = stream.held()
            if held and self._chance.random() < 0.4:
                stream.delete_message(self._chance.choice(held))
            if stream.config["retention"] == "limits" and number == 1:
                self._work()
                stream.step("switched", stream.switch)
            stream.step("worked", self._work)
            if self._chance.random() < 0.5:
                stream.step("edited", self._edit)
            if len(stream.consumers) > 1 and self._chance.random() < 0.3:
                stream.step("dropped", self._drop)
        stream.step("restored", stream.restore)

    def _add(self) -> None:
        self._made += 1
        name = f"c{self._made}"
        settings: dict[str, Any] = {
            "ack_wait": self._chance.choice([HOUR, int(SOON_S * SECOND)]),
            "max_deliver": self._chance.choice([-1, -1, 1, 2]),
            "max_ack_pending": self._chance.choice([1000, 1000, 4]),
        }
        if self._stream.config["retention"] == "workqueue":
            kinds = self._share[(self._made - 1) % len(self._share)]
        else:
            settings |= self._chance.choice(STARTS)
            settings["ack_policy"] = self._chance.choice(["explicit", "explicit", "all", "none"])
            # A consumer without a filter cannot start at the last message of each subject.
            filters = FILTERS[settings["deliver_policy"] == "last_per_subject" :]
            kinds = self._chance.choice(filters)
        self._create(name, kinds, settings)

    def _create(self, name: str, kinds: tuple[str, ...], settings: dict[str, Any]) -> None:
        """Create or update a consumer; on a work queue an overlapping one is refused, and nothing changes."""
        try:
            self._stream.consumer(name, kinds, **settings)
        except ServerError as error:
            if error.code not in OVERLAPS:
                raise
        else:
            self._replies.setdefault(name, [])

    def _work(self) -> None:
        """Each consumer fetches messages and answers some of all its deliveries, or all pending ones."""
        time.sleep(SOON_S)
        for name, config in self._stream.consumers.items():
            acknowledges = config["ack_policy"] != "none"
            for _ in range(self._chance.randint(0, 3)):
                taken = self._stream.take(name, self._chance.randint(1, 6))
                self._replies[name] += taken
                if acknowledges and self._replies[name]:
                    self._answer_some(self._replies[name])
            if acknowledges and self._chance.random() < 0.3:
                self._stream.answer(self._stream.take(name, 100))

    def _answer_some(self, replies: list[str]) -> None:
        for reply in self._chance.choices(replies, k=self._chance.randint(0, 6)):
            self._stream.answer([reply], self._chance.choice(BODIES))

    def _edit(self) -> None:
        name = self._chance.choice(sorted(self._stream.consumers))
        self._create(name, self._chance.choice(FILTERS[1:]), self._stream.consumers[name])

    def _drop(self) -> None:
        name = self._chance.choice(sorted(self._stream.consumers))
        self._stream.drop(name)
        del self._replies[name]
