"""Batches whose messages are written to files, in a thread of their own, while later ones are still read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from enum import Enum, auto
from threading import Condition

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core import message_rows
from retention.core.inventory import DataFile
from retention.core.seq_ranges import gaps_in
from retention.core.spans import Array
from retention.datafile.segment_writer import Staged, Staging, stage_rows
from retention.dialects.jetstream import JetStream
from retention.errors import VerificationError
from retention.ingest.append import ready_tail, staged_rows
from retention.ingest.sync.options import SyncBounds
from retention.layout.partition_tails import StreamEnds
from retention.layout.segment_roll import Tail
from retention.schemas.messages import FILE_COLUMNS
from retention.storage.crash_points import Step, reached

PART_BYTES = 8 << 20
"""Bytes of messages that are read, and then written, at a time; a batch has one row group or more for each."""


class _Mark(Enum):
    """The end of a batch between two parts."""

    COMPLETE = auto()
    ABANDONED = auto()


class Handover:
    """Parts of batches on their way from the thread that reads to the one that writes, in order, in bounded memory.

    Args:
        most_bytes: the bytes of parts above which the reader waits; one part is always taken.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._changed = Condition()
        self._waiting: deque[pa.Table | _Mark] = deque()
        self._bytes = 0
        self._is_open = True

    def put(self, rows: pa.Table) -> None:
        """Hand over a part, once there is room; a part that nobody will write is dropped."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_open or self._has_room(rows.nbytes))
            self._add(rows, rows.nbytes)

    def end(self) -> None:
        """Say that the batch is complete."""
        with self._changed:
            self._add(_Mark.COMPLETE)

    def abandon(self) -> None:
        """Take back the parts of a batch that is not complete, and say so."""
        with self._changed:
            while self._waiting and isinstance(self._waiting[-1], pa.Table):
                self._waiting.pop()
            self._add(_Mark.ABANDONED)

    def close(self) -> None:
        """Take nothing more: the writer has failed."""
        with self._changed:
            self._is_open = False
            self._waiting.clear()
            self._changed.notify_all()

    def parts(self) -> Iterator[pa.Table]:
        """The parts of one batch, as they come.

        Raises:
            AbandonedError: the batch will not be complete.
        """
        while (part := self._next()) is not _Mark.COMPLETE:
            if part is _Mark.ABANDONED:
                raise AbandonedError
            yield part

    def _next(self) -> pa.Table | _Mark:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._is_open)
            if not self._waiting:
                return _Mark.ABANDONED
            part = self._waiting.popleft()
            self._bytes -= part.nbytes if isinstance(part, pa.Table) else 0
            self._changed.notify_all()
            return part

    def _has_room(self, size: int) -> bool:
        return not self._bytes or self._bytes + size <= self._most_bytes

    def _add(self, part: pa.Table | _Mark, size: int = 0) -> None:
        if self._is_open:
            self._waiting.append(part)
            self._bytes += size
            self._changed.notify_all()


class AbandonedError(Exception):
    """The reader ended before its batch was complete."""


@dataclass(frozen=True)
class _Written:
    """The files of a batch."""

    begin: Tail
    """The end of the stream after which they were written."""
    staging: Staging
    files: Sequence[DataFile]
    staged: Staged

    def rows(self) -> Iterator[pa.Table]:
        """The messages, read from the files; shape `FILE_COLUMNS`."""
        return (rows.cast(FILE_COLUMNS) for rows in staged_rows(self.files))


class AheadBatch:
    """A batch whose parts are written while the next ones are read; implements `Batch`, once it is complete."""

    def __init__(self, handover: Handover, work: Future[_Written]) -> None:
        self._handover, self._work = handover, work
        self._seqs: list[Array] = []
        self._is_taken = False
        self.messages = self.bytes = 0
        """Of the parts so far; bytes as they are in memory."""

    def add(self, rows: pa.Table) -> None:
        """Add messages, shape `RAW_ROWS`, ascending and not empty; an error of the writer is raised here."""
        if self._work.done():
            self._work.result()
        self._handover.put(rows)
        self._seqs.append(rows["seq"].to_numpy())
        self.messages += rows.num_rows
        self.bytes += rows.nbytes

    def wait(self) -> None:
        """Wait until the files of a complete batch are written; an error of the writer is raised here."""
        self._work.result()

    @property
    def until(self) -> int:
        """The last sequence of the server that was read."""
        return int(self._seqs[-1][-1])

    def gaps(self, first: int) -> Array:
        """The ranges of sequences from `first` to `until` without a message; int64, ascending, shape (n, 2)."""
        return gaps_in(np.concatenate(self._seqs), first, self.until)

    def stage(self, staging: Staging, ends: StreamEnds) -> Staged:
        """The files that were written; their rows once more, if a commit of these was overtaken or others came before.

        Raises:
            VerificationError: a file differs from the rows written to it.
        """
        written = self._work.result()
        is_first, self._is_taken = not self._is_taken, True
        if is_first:
            staging.take_over(written.staging)
        staged = written.staged
        if not is_first or not ends.continues(written.begin):
            staged = stage_rows(staging, written.rows(), ends)
        if staged.messages != self.messages:
            raise VerificationError(
                f"{staged.messages:,} messages are in files, and {self.messages:,} were read up to sequence "
                f"{self.until:,}; nothing of this batch was committed; run it again, and report it if it stays"
            )
        return staged


class AheadWriter:
    """Threads that write batches, each after the end of the one before; see `writing_ahead`."""

    def __init__(self, opened: OpenedStream, most_bytes: int, threads: ThreadPoolExecutor) -> None:
        self._opened, self._threads = opened, threads
        self._handover = Handover(most_bytes)
        self._stagings: list[Staging] = []
        self._is_begun = False
        self._end: Future[Tail] | None = None
        """The end of the stream after the batch that was begun last, once all its parts are taken; None: none was."""

    def begin(self) -> AheadBatch:
        """Begin a batch, whose parts are `add`ed to it; the one before is complete."""
        self._is_begun = True
        before, self._end = self._end or self._ready(), Future()
        work = self._threads.submit(copy_context().run, self._write, before, self._end)
        return AheadBatch(self._handover, work)

    def _ready(self) -> Future[Tail]:
        """The end of the stream; a table is created only now that messages came."""
        return self._threads.submit(copy_context().run, ready_tail, self._opened)

    def complete(self) -> None:
        """Say that the batch that was begun last is complete."""
        self._is_begun = False
        self._handover.end()

    def end(self) -> None:
        """Abandon a batch that is not complete."""
        if self._is_begun:
            self._handover.abandon()

    def discard(self) -> None:
        """Delete the files of batches that no commit took over; nothing is written any more."""
        for staging in self._stagings:
            staging.discard()

    def _write(self, before: Future[Tail], after: Future[Tail]) -> _Written:
        """Write the next batch, once the parts of the one before are taken; the next may follow before this ends."""
        opened = self._opened
        staging = Staging(opened.store, opened.config.most_files)
        self._stagings.append(staging)
        try:
            begin = before.result()
            ends = JetStream.of(opened.config).ends(begin)
            staged = stage_rows(staging, self._parts(ends, after), ends)
        except BaseException as error:
            self._handover.close()
            if not after.done():
                after.set_exception(error)
            raise
        files = staging.named({row["path"] for row in staged.stats})
        return _Written(begin, staging, files, staged)

    def _parts(self, ends: StreamEnds, after: Future[Tail]) -> Iterator[pa.Table]:
        """The parts of the next batch as they are stored, shape `FILE_COLUMNS`."""
        for rows in self._handover.parts():
            yield message_rows.complete_rows(rows, self._opened.config.storage)
            reached(Step.PART_WRITTEN)
        after.set_result(ends.tail)


@contextmanager
def writing_ahead(opened: OpenedStream, most_bytes: int) -> Iterator[AheadWriter]:
    """A writer of batches for the block; after it, nothing is left that no commit took over.

    While a batch is synced to the disk and read back, the next one is written.

    Args:
        opened: the stream; its table is created if it does not exist.
        most_bytes: the bytes that may be read and not written, beyond which the reader waits.
    """
    with ThreadPoolExecutor(2, thread_name_prefix="ahead") as threads:
        writer = AheadWriter(opened, most_bytes, threads)
        try:
            yield writer
        finally:
            writer.end()
            threads.shutdown()
            writer.discard()


def batches_of(
    parts: Iterable[pa.Table], writer: AheadWriter, bounds: SyncBounds
) -> Iterator[AheadBatch]:
    """Parts as batches, each complete when it comes: as many parts as there is room for, and no more messages.

    Args:
        parts: tables of shape `RAW_ROWS`, ascending and not empty.
        writer: the writer of the batches.
        bounds: the bounds of a batch; one part is always taken.
    """
    batch: AheadBatch | None = None
    for rows in parts:
        left = rows
        while left.num_rows:
            batch = batch or writer.begin()
            taken = left.slice(0, bounds.batch_messages - batch.messages)
            left = left.slice(taken.num_rows)
            batch.add(taken)
            is_full = batch.bytes + rows.nbytes > bounds.batch_bytes
            if is_full or batch.messages == bounds.batch_messages:
                writer.complete()
                yield batch
                batch = None
    if batch is not None:
        writer.complete()
        yield batch
