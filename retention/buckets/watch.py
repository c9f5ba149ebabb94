"""Watching a bucket: its current values, then new entries, found by polling the log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.buckets.entry import COLUMNS, Entry, entries_of
from retention.buckets.read import BucketReader
from retention.errors import UsageError
from retention.inspect.key_messages import KeyMessages

POLL_S = 1.0
"""The time between two reads of the log, in seconds."""


@dataclass(frozen=True)
class WatchOptions:
    """The entries that a watch yields (nats.go, WatchOpt)."""

    include_history: bool = False
    """Whether to begin with all kept values of a key, not only the last."""
    updates_only: bool = False
    """Whether to begin with new entries only."""
    ignore_deletes: bool = False
    """Whether to omit deletions and purges."""
    resume_from: int | None = None
    """The revision from which to begin with all kept values."""


class Watcher:
    """A watch over keys that filters match: an endless iterator, in order of revisions.

    It yields None once, after the initial values.
    """

    def __init__(
        self,
        reader: BucketReader,
        filters: Sequence[str],
        options: WatchOptions,
        poll_s: float = POLL_S,
    ) -> None:
        """Store the options; nothing is read before the first entry is requested.

        Raises:
            UsageError: a filter matches no key, or options exclude each other.
        """
        if options.updates_only and (options.include_history or options.resume_from is not None):
            raise UsageError(
                "a watch of updates only yields no existing values: leave out include_history and resume_from, "
                "or updates_only"
            )
        self._reader = reader
        self._subjects = reader.subjects(filters)
        self._options = options
        self._poll_s = poll_s
        self._reached: int | None = None
        self._table: str | None = None

    def __iter__(self) -> Iterator[Entry | None]:
        yield from self.poll()
        yield None
        while True:
            time.sleep(self._poll_s)
            yield from self.poll()

    def poll(self) -> Iterator[Entry]:
        """The entries since the last poll; on the first poll, the initial ones.

        Raises:
            UsageError: the bucket was dropped since.
            DamagedError: a required file is damaged.
        """
        messages = self._reader.messages()
        self._refuse_another_table()
        first, self._reached = self._reached, _highest(messages.files, self._reached or 0)
        at_first = self._at_first(messages) if first is None else None
        seqs = messages.seqs_after(first or 0, self._subjects) if at_first is None else at_first
        yield from self._entries(messages, seqs)

    def _at_first(self, messages: KeyMessages) -> np.ndarray:
        options = self._options
        if options.updates_only:
            return np.array([], np.int64)
        if not options.include_history and options.resume_from is None:
            return messages.last_seqs(self._subjects)
        seqs = messages.shown_seqs(self._subjects)
        return seqs[seqs >= (options.resume_from or 0)]

    def _entries(self, messages: KeyMessages, seqs: np.ndarray) -> Iterator[Entry]:
        left = len(seqs)
        for rows in messages.rows_at(seqs, COLUMNS):
            for entry in entries_of(self._reader.bucket, self._reader.prefix, rows):
                left -= 1
                if not (self._options.ignore_deletes and entry.is_deletion):
                    yield replace(entry, delta=left)

    def _refuse_another_table(self) -> None:
        table = self._reader.table_id
        if self._table is not None and table != self._table:
            raise UsageError(
                f"bucket {self._reader.bucket}: it was dropped during the watch; watch it again"
            )
        self._table = table


def _highest(files: pa.Table, at_least: int) -> int:
    return max(pc.max(files["max_seq"]).as_py() or 0, at_least)
