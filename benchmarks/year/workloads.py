"""Workloads of simulated streams: their settings, hourly publishes, and expected messages."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from retention.api.stream import Stream
from retention.core.units import DAY

STREAM = "YEAR"
SHORTEST, LONGEST = 200, 400
"""Bytes of payloads, drawn evenly."""
GRACE, HISTORY = "3d", "90d"
_SEED = 20_260_101


class Workload(ABC):
    """A stream's workload, hour by hour, with a model of the expected messages."""

    settings: ClassVar[str]
    """The settings of the stream in `retention.yaml`, except its subjects and format."""

    def __init__(self, messages: int) -> None:
        """Begin with a number of messages per hour."""
        self.random = np.random.default_rng(_SEED)
        self.messages = messages
        self.hour = 0

    def publish(self, stream: Stream) -> None:
        """Publish the messages of an hour, as one batch."""
        now_ns = time.time_ns()
        lines = [json.dumps(line | {"ts_ns": now_ns}) for line in self.lines()]
        published = stream.publish(lines).appended
        self.keep(range(published.first_seq, published.last_seq + 1), now_ns)

    @abstractmethod
    def lines(self) -> list[dict[str, Any]]:
        """The messages of the next hour."""

    @abstractmethod
    def keep(self, seqs: range, ts_ns: int) -> None:
        """Add the messages of an hour, stored at that time, to the model."""

    def work(self, stream: Stream) -> None:
        """Do the other work of an hour with the stream, and end the hour."""
        self.hour += 1

    @abstractmethod
    def left(self, as_of_ns: int) -> set[int]:
        """The expected sequences after a pass."""

    def payload(self) -> str:
        """A payload: hexadecimal digits, which compress to about half."""
        length = int(self.random.integers(SHORTEST, LONGEST + 1))
        return self.random.bytes(length // 2 + 1).hex()[:length]


class Limits(Workload):
    """Readings kept for 30 days; one in ten has a TTL of two days."""

    settings = "max_age: 30d, allow_msg_ttl: true"
    subjects = 50
    ttl_days = 2

    def __init__(self, messages: int) -> None:
        """Begin with no readings."""
        super().__init__(messages)
        self.deadlines: dict[int, int] = {}

    def lines(self) -> list[dict[str, Any]]:
        """Readings of several sensors."""
        return [
            {"subject": f"year.{int(self.random.integers(self.subjects))}", "data": self.payload()}
            | ({"headers": {"Nats-TTL": f"{self.ttl_days * 24}h"}} if number % 10 == 0 else {})
            for number in range(self.messages)
        ]

    def keep(self, seqs: range, ts_ns: int) -> None:
        """Note the expiry of each reading."""
        for number, seq in enumerate(seqs):
            self.deadlines[seq] = ts_ns + (self.ttl_days if number % 10 == 0 else 30) * DAY

    def left(self, as_of_ns: int) -> set[int]:
        """The unexpired readings."""
        self.deadlines = {seq: at for seq, at in self.deadlines.items() if at > as_of_ns}
        return set(self.deadlines)


class Queue(Workload):
    """Orders in a work queue, settled an hour after arrival; one in twenty is delayed for three days."""

    settings = (
        "retention: workqueue, "
        "consumers: [{durable_name: packing, ack_policy: explicit, ack_wait: 12h}]"
    )

    def __init__(self, messages: int) -> None:
        """Begin with no orders."""
        super().__init__(messages)
        self.waiting: set[int] = set()

    def lines(self) -> list[dict[str, Any]]:
        """Orders of several shops."""
        return [
            {"subject": f"year.{int(self.random.integers(50))}", "data": self.payload()}
            for _ in range(self.messages)
        ]

    def keep(self, seqs: range, ts_ns: int) -> None:
        """Add every order as pending."""
        self.waiting.update(seqs)

    def work(self, stream: Stream) -> None:
        """Settle due orders, and delay some of them at their first delivery."""
        super().work(stream)
        given = stream.consumer("packing").fetch(2 * self.messages)
        if not len(given):
            return
        first = np.array([message.deliveries == 1 for message in given])
        put_off = first & (given.seqs % 20 == 0)
        given.filter(put_off).nak("72h")
        done = given.filter(~put_off)
        done.ack()
        self.waiting.difference_update(done.seqs.tolist())

    def left(self, as_of_ns: int) -> set[int]:
        """The unsettled orders."""
        return self.waiting


class Keys(Workload):
    """A table of 1,000 keys: two keys are added and the two oldest deleted per hour, and others get new values."""

    settings = "max_msgs_per_subject: 1, delete_retention: 7d, segment_span: off"
    keys, turnover = 1_000, 2

    def __init__(self, messages: int) -> None:
        """Begin with no keys."""
        super().__init__(messages)
        self.values: dict[int, int] = {}
        self.deletions: dict[int, tuple[int, int]] = {}
        self.coming: list[tuple[int, bool]] = []

    def lines(self) -> list[dict[str, Any]]:
        """Values of keys, and deletions of the oldest keys."""
        newest = self.keys + self.turnover * self.hour
        oldest = newest - self.keys
        drawn = self.random.integers(oldest, newest, self.messages - 2 * self.turnover)
        new = range(newest, newest + self.turnover)
        gone = range(oldest - self.turnover, oldest) if self.hour else range(0)
        self.coming = [(int(key), False) for key in [*drawn, *new]] + [(key, True) for key in gone]
        return [
            {"subject": f"year.{key}", "data": "", "headers": {"KV-Operation": "DEL"}}
            if is_deleted
            else {"subject": f"year.{key}", "data": self.payload()}
            for key, is_deleted in self.coming
        ]

    def keep(self, seqs: range, ts_ns: int) -> None:
        """Record each key's newest value or deletion."""
        for seq, (key, is_deleted) in zip(seqs, self.coming, strict=True):
            if is_deleted:
                self.values.pop(key, None)
                self.deletions[key] = (seq, ts_ns)
            else:
                self.values[key] = seq

    def left(self, as_of_ns: int) -> set[int]:
        """The newest value of each key, and the deletions of the last seven days."""
        self.deletions = {
            key: (seq, at) for key, (seq, at) in self.deletions.items() if at > as_of_ns - 7 * DAY
        }
        return {*self.values.values(), *(seq for seq, _ in self.deletions.values())}


WORKLOADS: dict[str, type[Workload]] = {"limits": Limits, "queue": Queue, "keys": Keys}
