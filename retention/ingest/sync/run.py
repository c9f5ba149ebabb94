"""Copying the new messages of a server's stream in bounded batches, each committed once with its position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.datafile.segment_writer import PARTITION
from retention.dialects.jetstream import JetStream
from retention.errors import BusyError, RefusedError, ServerError, Terminated
from retention.ingest.append import Appended, appending, refuse_topic_of
from retention.ingest.progress import naming_progress
from retention.ingest.sync.ahead import PART_BYTES, AheadBatch, batches_of, writing_ahead
from retention.ingest.sync.batch import Batch, ReadBatch
from retention.ingest.sync.beside import Beside, one_beside
from retention.ingest.sync.fitness import refuse_unfit
from retention.ingest.sync.missed import NONE_MISSED, KnownGaps, Missed, missed_in
from retention.ingest.sync.options import BOUNDS, SyncBounds
from retention.ingest.sync.position import SyncStart, identity_of, refuse_moved, start_of
from retention.ingest.sync.result import Ended, Synced
from retention.storage.signals import NO_STOP, Stop, uninterrupted
from retention.stores.lease import lease

if TYPE_CHECKING:
    from retention.nats.stream import RemoteStream, StreamInfo

MOST_KNOWN_GAPS = 100_000
"""A server's deleted sequences are asked for up to this number; above it, those below its first count as missed."""


def no_companions(_last_seq: int) -> None:
    """Bring nothing along with the messages."""


def run_sync(
    opened: OpenedStream,
    remote: RemoteStream,
    bounds: SyncBounds = BOUNDS,
    along: Callable[[int], None] = no_companions,
) -> Synced:
    """Bring a stream up to the last sequence that its server has now.

    Every batch is one commit with the position after it, so that a run that was killed goes on after its last commit.
    Sequences, times, subjects, headers and payloads are the server's; its gaps stay gaps.

    Args:
        opened: the stream, which is created if it does not exist.
        remote: the server's stream.
        bounds: the bounds of a batch.
        along: called before the first message and after every batch, with the stream's last sequence.

    Raises:
        RefusedError: the server's stream is another one than before, cannot be synced, or removed more messages before
            they were copied than `max_missed`; or others wrote to the stream. Earlier batches are kept.
        BusyError: another sync of the stream runs, the append lease is held, or others kept committing first.
    """
    with running(opened, remote, bounds, along) as run:
        run.catch_up(run.info.last_seq)
        return run.result("end")


def follow_sync(
    opened: OpenedStream,
    remote: RemoteStream,
    bounds: SyncBounds = BOUNDS,
    along: Callable[[int], None] = no_companions,
    stop: Stop = NO_STOP,
) -> Synced:
    """Keep a stream in step with its server until a signal ends this process, or the server's stream is sealed.

    Args:
        opened: the stream, which is created if it does not exist.
        remote: the server's stream.
        bounds: the bounds of a batch.
        along: called before the first message and after every batch, with the stream's last sequence.
        stop: in a thread, asks for the end.

    Raises:
        RefusedError: as `run_sync`.
        BusyError: as `run_sync`.
    """
    with running(opened, remote, bounds, along) as run:
        ended: Ended = "signal"
        try:
            if run.follow(stop):
                ended = "sealed"
        except (KeyboardInterrupt, Terminated):
            pass
        return run.result(ended)


@contextmanager
def running(
    opened: OpenedStream,
    remote: RemoteStream,
    bounds: SyncBounds,
    along: Callable[[int], None],
) -> Iterator[SyncRun]:
    """A run that no other sync of the stream disturbs."""
    refuse_topic_of(opened.config)
    with lease(opened.root, "sync", opened.clock, wait_s=opened.wait_s):
        info = remote.info()
        refuse_unfit(opened, info)
        start = start_of(opened, remote, info)
        along(start.held)
        run = SyncRun(opened, remote, bounds, along, info, start)
        with naming_progress(run.progress):
            yield run


@dataclass(frozen=True)
class _CheckedBatch:
    """A batch that may be committed."""

    batch: Batch
    info: StreamInfo
    """The server's stream after the batch was read."""
    missed: Missed


class SyncRun:
    """A run: its position, and the sums so far."""

    def __init__(
        self,
        opened: OpenedStream,
        remote: RemoteStream,
        bounds: SyncBounds,
        along: Callable[[int], None],
        info: StreamInfo,
        start: SyncStart,
    ) -> None:
        self._opened, self._remote, self._bounds, self._along = opened, remote, bounds, along
        self.info, self.start = info, start
        self._is_restored = start.is_restored
        self._known = _known_gaps(remote, info)
        self._missed = NONE_MISSED
        self._messages = self._bytes = self._commits = 0

    def follow(self, stop: Stop) -> bool:
        """Catch up, then copy what comes, until the server's stream is sealed; returns whether it is."""
        self.catch_up(self.info.last_seq, stop)
        while self._follow_until_behind(stop):
            # A connection has one reader at a time, and only one with an end tells that the last messages are gone.
            self.catch_up(self.info.last_seq, stop)
        return self.info.is_sealed

    def _follow_until_behind(self, stop: Stop) -> bool:
        """Copy what comes; returns whether the server is a batch ahead, or nothing came although it is ahead."""
        bounds = self._bounds
        batches = self._remote.follow(
            self.start.first, bounds.batch_messages, bounds.batch_bytes, bounds.linger_s
        )
        with closing(batches):
            for rows in batches:
                stop.check()
                if rows.num_rows:
                    self._take_new(rows)
                    if self.info.last_seq - self.start.held >= bounds.batch_messages:
                        return True
                elif self.start.held < self.info.last_seq:
                    return True
                else:
                    self.info = self._checked(self.start.held)
                    self._along(self.start.held)
                    if self.info.is_sealed and self.start.held >= self.info.last_seq:
                        return False
        return False

    def catch_up(self, end: int, stop: Stop = NO_STOP) -> None:
        """Copy everything up to a sequence that the server has assigned, and move the position there."""
        if self.start.held >= end:
            return
        bounds = self._bounds
        part_bytes = min(bounds.batch_bytes, PART_BYTES)
        parts = self._remote.read(self.start.first, end, bounds.batch_messages, part_bytes)
        with (
            writing_ahead(self._opened, bounds.batch_bytes) as writer,
            one_beside() as commits,
            closing(parts),
        ):
            for batch in batches_of(_until(stop, parts), writer, bounds):
                self._take_beside(commits, batch)
        if self.start.held < end:
            self._refuse_unread(end)
            self.take(ReadBatch(self._opened.config.storage, None, end))

    def result(self, ended: Ended) -> Synced:
        """The outcome of the run."""
        return Synced(
            stream=self._opened.name,
            origin=self.info.name,
            created=self.info.created,
            messages=self._messages,
            bytes=self._bytes,
            commits=self._commits,
            position=self.start.held,
            last_seq=self.info.last_seq,
            missed=self._missed,
            is_restored=self._is_restored,
            ended=ended,
        )

    def progress(self) -> str:
        """The batches committed before an error; empty: none was."""
        if not self._commits:
            return ""
        came = counted(self._messages, "message")
        return f"{came} up to sequence {self.start.held:,} were copied before, and are kept"

    def _refuse_unread(self, end: int) -> None:
        """Refuse to move the position over messages that the server still holds.

        Raises:
            ServerError: reading ended before the last message up to `end`.
        """
        left = self._remote.next_message(self.start.first)
        if left is not None and left.seq <= end:
            raise ServerError(
                f"{self._opened.name}: reading {self.info.name} ended at sequence {self.start.held:,}, and the server "
                f"still has message {left.seq:,}: a replica of it may lag; nothing was skipped; run it again"
            )

    def _take_new(self, rows: pa.Table) -> None:
        """Commit those of some messages that were not read before."""
        new = rows.filter(pc.greater(rows["seq"], self.start.held))
        if new.num_rows:
            self.take(ReadBatch(self._opened.config.storage, new, _last_seq_in(new)))

    def take(self, batch: Batch) -> None:
        """Commit a batch with the position after it; a signal waits for its end.

        Raises:
            RefusedError: the server's stream is another one meanwhile, or removed more messages than may be missed.
            BusyError: another sync committed meanwhile, or others kept committing first.
        """
        with uninterrupted():
            checked = self._checked_batch(batch)
            self._took(checked, self._commit(checked))
        self._along(batch.until)

    def _take_beside(self, commits: Beside, batch: AheadBatch) -> None:
        """Begin to commit a batch as `take` does, once the one before it is committed; the connection is free then."""
        commits.settle()
        checked = self._checked_batch(batch)

        def then(appended: Appended) -> None:
            self._took(checked, appended)
            self._along(batch.until)

        commits.begin(partial(self._commit_written, batch, checked), then)

    def _checked_batch(self, batch: Batch) -> _CheckedBatch:
        info = self._checked(batch.until)
        removed_to = min(batch.until, info.first_seq - 1)
        missed = missed_in(batch.gaps(self.start.first), removed_to, self._known)
        self._refuse_missed(missed)
        return _CheckedBatch(batch, info, missed)

    def _took(self, checked: _CheckedBatch, appended: Appended) -> None:
        """Move the position after a batch that was committed."""
        until = checked.batch.until
        self.start = replace(self.start, kept=until, held=until, first=until + 1)
        self.info = checked.info
        self._missed += checked.missed
        self._messages += appended.messages
        self._bytes += appended.bytes
        self._commits += 1

    def _checked(self, until: int) -> StreamInfo:
        """The server's stream as it is now.

        Raises:
            RefusedError: it is another stream than at the beginning of the run, or has fewer messages.
        """
        info = self._remote.info()
        if info.created != self.info.created or info.last_seq < until:
            raise RefusedError(
                f"{self._opened.name}: {info.name} on the server was deleted, made anew or restored meanwhile "
                f"(created {info.created}, last sequence {info.last_seq:,}); the batch up to {until:,} was not "
                "committed; run it again, which compares the messages first"
            )
        return info

    def _refuse_missed(self, missed: Missed) -> None:
        total = self._missed + missed
        if total.count <= self._bounds.max_missed:
            return
        accept = command("sync nats", self._opened.name, options=f"--max-missed {total.count}")
        raise RefusedError(
            f"{self._opened.name}: the server removed messages of {self.info.name} before they were copied, by its "
            f"limits or a purge (missed: {total}), and at most {self._bounds.max_missed:,} may be missed (max_missed); "
            f"this batch was not committed; accept the gap ({accept}), and sync more often or raise the limits"
        )

    def _commit_written(self, batch: AheadBatch, checked: _CheckedBatch) -> Appended:
        batch.wait()
        with uninterrupted():
            return self._commit(checked)

    def _commit(self, checked: _CheckedBatch) -> Appended:
        opened, start, batch = self._opened, self.start, checked.batch
        identity = identity_of(checked.info, batch.until, start.kept)
        with appending(opened, identity, "sync") as append:
            for attempt in append.attempts_at_end():
                refuse_moved(opened, attempt.end, start)
                ends = JetStream.of(opened.config).ends(attempt.end.tail(PARTITION))
                staged = batch.stage(attempt.staging, ends)
                append.commit(replace(staged, next_seq={PARTITION: batch.until + 1}))
        if append.done.duplicate:
            raise BusyError(
                f"{opened.name}: another sync of it committed meanwhile; each message was stored once; let one run at "
                "a time"
            )
        return append.done


def _until(stop: Stop, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The parts, until a thread is asked to end."""
    for rows in parts:
        stop.check()
        yield rows


def _last_seq_in(rows: pa.Table) -> int:
    return int(rows["seq"][-1].as_py())


def _known_gaps(remote: RemoteStream, info: StreamInfo) -> KnownGaps:
    """The gaps of a server's stream now, if they are few enough to ask for."""
    count = info.last_seq - info.first_seq + 1 - info.messages
    if not info.messages or not 0 < count <= MOST_KNOWN_GAPS:
        return KnownGaps()
    return KnownGaps(np.asarray(remote.info(deleted=True).deleted, np.int64))
