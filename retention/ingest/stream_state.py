"""The state of a stream that a broker would keep in memory: ids, last sequences, room under limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.digest_index import DigestIndex
from retention.context.message_ids import MessageIds
from retention.context.position import Position
from retention.core.bucket_names import bucket_of
from retention.core.message_rows import later_mask
from retention.datafile.parquet import read_columns
from retention.ingest.rollup import EVERYTHING, SUBJECT
from retention.inspect.key_messages import shown_last_seqs
from retention.inspect.latest import pick_latest
from retention.ports import Store
from retention.rules.jetstream.key_view import KeyView
from retention.schemas.messages import FILE_COLUMNS
from retention.stores.kept_ids import KeptIds

UNCAPPED = 2**62
"""The limit for a subject without one whose messages must be tracked separately: more than it can have."""


@dataclass
class Room:
    """The fill level of a stream, by the counts that `discard: new` uses.

    Messages beyond the limit per subject do not count: the broker removes them when a message is stored, here a later
    `apply` does. Everything else in the table counts until `apply` removes it.
    """

    count: int
    bytes: int
    cap: int | None = None
    """The limit of messages per subject; None: subjects are not tracked."""
    kept: dict[str, deque[int]] = field(default_factory=dict)
    """Subject → sizes of the messages that its own limit keeps, oldest first."""

    def take(self, subject: str, size: int) -> None:
        """Count one more message, and drop the oldest of its subject from the count if that is at its limit."""
        self.count += 1
        self.bytes += size
        if self.cap is not None:
            kept = self.kept.setdefault(subject, deque())
            kept.append(size)
            self._trim(kept, self.cap)

    def roll_up(self, subject: str, kind: int) -> None:
        """Drop from the count the messages that a new message's roll-up replaces, before it is counted itself."""
        if kind == SUBJECT:
            self._trim(self.kept.get(subject, deque()), 0)
        elif kind == EVERYTHING:
            self.count, self.bytes, self.kept = 0, 0, {}

    def _trim(self, kept: deque[int], cap: int) -> None:
        while len(kept) > cap:
            self.count -= 1
            self.bytes -= kept.popleft()


@dataclass(frozen=True)
class StreamState:
    """One version of a stream, read lazily."""

    store: Store
    files: pa.Table
    """Shape `FILE_STATS`."""
    kept: KeptIds
    """The ids of messages that were removed or never stored."""
    digests: DigestIndex
    """The subject digests of the files, as far as they are cached."""
    message_ids: MessageIds
    """The ids in recent files, as far as they are cached."""
    view: KeyView | None = None
    """For a bucket: the messages visible to expectations; None: all stored messages."""

    @classmethod
    def at(cls, opened: OpenedStream, position: Position, now_ns: int) -> StreamState:
        """The state of a stream at its end, at an instant, nanoseconds since the epoch.

        In a bucket an expired value is not visible, even before a pass removes it.
        """
        snapshot = position.snapshot
        layout = opened.layout
        kept = KeptIds.of(layout, snapshot.table_id, snapshot.counters)
        is_bucket = bucket_of(opened.name) is not None
        view = KeyView.of(opened.config.policy(), now_ns) if is_bucket else None
        files = position.inventory.files
        return cls(opened.store, files, kept, opened.digests, opened.message_ids, view)

    def ids(self, wanted: pa.Array, after_ns: int) -> dict[str, tuple[int, int]]:
        """The wanted ids that messages younger than `after_ns` carry or carried: id → sequence and time of the last."""
        recent = self.files.filter(later_mask(self.files["max_ts_ns"], after_ns))
        hits = list(self.kept.find(wanted, after_ns))
        known = self.message_ids.among(self.store, recent, wanted)
        hits.append(known.filter(later_mask(known["ts_ns"], after_ns)))
        messages = pa.concat_tables(hits).sort_by("seq")
        numbers = zip(messages["seq"].to_pylist(), messages["ts_ns"].to_pylist(), strict=True)
        return dict(zip(messages["msg_id"].to_pylist(), numbers, strict=True))

    def last_id(self, last_seq: int, expected: Sequence[str]) -> str:
        """The id of the last message; empty if it has none, or was removed and had none of the expected ids."""
        last = self.files.filter(pc.equal(self.files["max_seq"], last_seq))
        for rows in self._columns(last, ("seq", "msg_id")):
            return rows["msg_id"][-1].as_py() or ""
        for hits in self.kept.find(pa.array(expected, pa.string()), -1):
            if hit := hits.filter(pc.equal(hits["seq"], last_seq))["msg_id"].to_pylist():
                return str(hit[0])
        return ""

    def last_seqs(self, wanted: Collection[str]) -> dict[str, int]:
        """Subject → its last sequence, for subjects that match one of some filters, from the subject digests."""
        if not wanted:
            return {}
        return shown_last_seqs(self.store, self.files, self.view, wanted, self.digests)

    def subjects(self) -> pa.Array:
        """All subjects with stored messages."""
        return pc.unique(self._digests()["subject"])

    def last_messages(self, subjects: pa.Array) -> dict[str, tuple[bytes | None, bytes]]:
        """Subject → header block and payload of its last message, for subjects that have one."""
        digests = self._digests()
        known = digests.filter(pc.is_in(digests["subject"], value_set=subjects))
        last = known.group_by("subject").aggregate([("last_seq", "max")])
        seqs = np.sort(last["last_seq_max"].to_numpy())
        columns = ("seq", "subject", "headers", "payload")
        return {
            row["subject"]: (row["headers"], row["payload"])
            for rows in pick_latest(self.store, self.files, seqs, columns)
            for row in rows.to_pylist()
        }

    def room(self, cap: int | None, arriving: pa.Array, *, sizes: bool) -> Room:
        """Compute the stream's fill level.

        Args:
            cap: the limit of messages of one subject.
            arriving: the subjects of the messages to come.
            sizes: whether to count bytes; if not, no data file is opened.
        """
        count = pc.sum(self.files["messages"], min_count=0).as_py()
        total = pc.sum(self.files["bytes"], min_count=0).as_py()
        if cap is None:
            return Room(count, total)
        digests = self._digests()
        held = digests.group_by("subject").aggregate([("messages", "sum")])
        surplus = pc.max_element_wise(pc.subtract(held["messages_sum"], cap), 0)
        comes = pc.is_in(held["subject"], value_set=arriving)
        if not sizes:
            here = held.filter(comes)
            kept = zip(here["subject"].to_pylist(), here["messages_sum"].to_pylist(), strict=True)
            room = Room(count - pc.sum(surplus, min_count=0).as_py(), total, cap)
            room.kept |= {subject: deque(repeat(0, min(number, cap))) for subject, number in kept}
            return room
        concerned = held["subject"].filter(pc.or_(comes, pc.greater(surplus, 0)))
        rows = self._sizes(digests.filter(pc.is_in(digests["subject"], value_set=concerned)))
        size = pc.sum(rows["size"], min_count=0).as_py()
        room = Room(count - rows.num_rows, total - size, cap)
        for subject, size in zip(
            rows["subject"].to_pylist(), rows["size"].to_pylist(), strict=True
        ):
            room.take(subject, size)
        return room

    def _sizes(self, digests: pa.Table) -> pa.Table:
        """Subject and size of the messages in digests, ascending by sequence."""
        columns = ("seq", "subject", "size")
        files = self.files.take(pc.unique(digests["file"]))
        empty = pa.schema([FILE_COLUMNS.field(name) for name in columns]).empty_table()
        parts = (
            rows.filter(pc.is_in(rows["subject"], value_set=pc.unique(digests["subject"])))
            for rows in self._columns(files, columns)
        )
        return pa.concat_tables([empty, *parts], promote_options="permissive").sort_by("seq")

    def _digests(self) -> pa.Table:
        return self.store.subject_counts(self.files)

    def _columns(self, files: pa.Table, columns: Collection[str]) -> Iterator[pa.Table]:
        for file in self.store.data_files(files):
            yield read_columns(file, tuple(columns))[0]
