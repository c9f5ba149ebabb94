"""A server's stream as a sync reads it, from messages in memory: for kills at every step, and for servers that lie.

Real servers are in tests/live/test_sync.py; no test takes this one's word for how a server behaves.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.formats.nats.backup import RAW_ROWS
from retention.nats.stream import ConsumerInfo, RemoteStream, StoredMessage, StreamInfo
from tests.support.nats_oracle import Message, raw_rows

CREATED = "2026-11-21T10:00:00.000000001Z"


@dataclass
class RecordedStream(RemoteStream):
    """Messages of one stream; tests change its fields as a server's state would change."""

    rows: pa.Table
    created: str = CREATED
    last_seq: int | None = None
    config: dict[str, Any] = field(default_factory=lambda: {"name": "ORDERS"})
    known_consumers: Sequence[ConsumerInfo] = ()
    each_table: Callable[[], None] = lambda: None
    """Called before each table that is handed out."""
    name: str = "ORDERS"
    most_rows: int = 2**31
    """The most rows of a table, beside the batch's bounds."""

    @classmethod
    def of(cls, messages: Sequence[Message], **fields: Any) -> RecordedStream:
        """A stream of these messages."""
        return cls(raw_rows(messages), **fields)

    def info(self, *, deleted: bool = False) -> StreamInfo:
        """The state, as `RemoteStream.info` returns it."""
        seqs = self.rows["seq"].to_numpy()
        last = self.last_seq or (int(seqs[-1]) if len(seqs) else 0)
        first = int(seqs[0]) if len(seqs) else last + 1
        gone = np.setdiff1d(np.arange(first, last + 1), seqs) if deleted else np.empty(0, np.int64)
        return StreamInfo(
            name=self.name,
            created=self.created,
            first_seq=first,
            last_seq=last,
            messages=len(seqs),
            bytes=0,
            num_deleted=last - first + 1 - len(seqs),
            deleted=gone,
            first_ts_ns=None,
            last_ts_ns=None,
            config=self.config,
            is_sealed=bool(self.config.get("sealed")),
            mirror=None,
            num_consumers=len(self.known_consumers),
        )

    def message(self, seq: int) -> StoredMessage | None:
        """One message, as `RemoteStream.message` returns it."""
        found = self.rows.filter(pc.equal(self.rows["seq"], seq)).to_pylist()
        if not found:
            return None
        return StoredMessage(**found[0] | {"payload": found[0]["payload"] or b""})

    def next_message(self, seq: int) -> StoredMessage | None:
        """The first message from a sequence on, as `RemoteStream.next_message` returns it."""
        later = self.rows.filter(pc.greater_equal(self.rows["seq"], seq))
        return self.message(int(later["seq"][0].as_py())) if later.num_rows else None

    def read(
        self, first: int, last: int, batch_messages: int, batch_bytes: int
    ) -> Generator[pa.Table, None, None]:
        """Messages in tables of at most `batch_messages` and `most_rows`."""
        del batch_bytes
        while True:
            self.each_table()
            seqs = self.rows["seq"]
            left = self.rows.filter(
                pc.and_(pc.greater_equal(seqs, first), pc.less_equal(seqs, last))
            )
            if not left.num_rows:
                return
            table = left.slice(0, min(batch_messages, self.most_rows))
            first = int(table["seq"][-1].as_py()) + 1
            yield table

    def follow(
        self, first: int, batch_messages: int, batch_bytes: int, linger_s: float
    ) -> Generator[pa.Table, None, None]:
        """Messages as they come, and an empty table whenever none is left."""
        del linger_s
        while True:
            for table in self.read(first, 2**62, batch_messages, batch_bytes):
                first = int(table["seq"][-1].as_py()) + 1
                yield table
            yield RAW_ROWS.empty_table()

    def consumers(self) -> list[ConsumerInfo]:
        """The consumers, as `RemoteStream.consumers` returns them."""
        return list(self.known_consumers)

    def without(self, *seqs: int) -> None:
        """Remove messages, as limits, deletes and purges do; the last sequence stays."""
        self.last_seq = self.info().last_seq
        gone = pc.is_in(self.rows["seq"], value_set=pa.array(seqs, pa.int64()))
        self.rows = self.rows.filter(pc.invert(gone))

    def publish(self, messages: Sequence[Message]) -> None:
        """Add messages at the end."""
        self.rows, self.last_seq = pa.concat_tables([self.rows, raw_rows(messages)]), None


def messages(first: int, last: int, payload: bytes = b"x") -> list[Message]:
    """Messages on three subjects in turn, a second apart; every other one has headers."""
    start = 1_763_700_000 * 10**9
    return [
        Message(
            seq,
            f"s.{seq % 3}",
            start + seq * 10**9,
            b"NATS/1.0\r\nA: b\r\n\r\n" if seq % 2 else b"",
            payload + str(seq).encode(),
        )
        for seq in range(first, last + 1)
    ]


def restored(stream: RecordedStream) -> RecordedStream:
    """The same messages in a stream that was created anew, as after a restore."""
    return replace(stream, created="2026-11-22T10:00:00Z")


def consumer(name: str, floor: int, **config: Any) -> ConsumerInfo:
    """A durable consumer that has settled everything up to a sequence."""
    values = {"durable_name": name, "ack_policy": "explicit", **config}
    return ConsumerInfo(name, values, floor, floor, 0, CREATED, CREATED)
