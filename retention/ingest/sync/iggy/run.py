"""Copying the new messages of a server's topic in bounded batches, each committed once with its positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.spoken_commands import command
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.core.wording import counted
from retention.datafile.segment_writer import Staged, write_segments
from retention.dialects.iggy import with_topic
from retention.errors import BusyError, RefusedError, Terminated
from retention.iggy.topic import RemoteTopic
from retention.iggy.wire import TopicInfo
from retention.ingest.append import AppendAttempt, Appended, appending
from retention.ingest.progress import naming_progress
from retention.ingest.sync.iggy.position import (
    TopicPosition,
    counters_after,
    partition_notes,
    refuse_moved,
    start_of,
)
from retention.ingest.sync.iggy.reading import (
    PartitionMissed,
    PartitionRead,
    PartitionReader,
    Room,
    batch_starts,
)
from retention.ingest.sync.iggy.result import PartitionSynced, TopicSynced
from retention.ingest.sync.options import BOUNDS, SyncBounds
from retention.ingest.sync.result import Ended
from retention.layout.segment_roll import Tail
from retention.layout.topic_segment_roll import AppendedBatch, place_stored
from retention.storage.signals import NO_STOP, Stop, uninterrupted
from retention.stores.lease import lease

Along = Callable[[TopicInfo], object]
"""Called after messages were committed, with the server's topic."""


def no_along(info: TopicInfo) -> None:
    """Bring nothing besides messages."""


def run_topic_sync(
    opened: OpenedStream,
    remote: RemoteTopic,
    bounds: SyncBounds = BOUNDS,
    along: Along = no_along,
) -> TopicSynced:
    """Bring a topic up to the last offsets that its server has now.

    Every batch is one commit with the positions after it, so that a run that was killed goes on after its last commit.
    Offsets, ids, times, user headers and payloads are the server's; its gaps stay gaps.

    Args:
        opened: the topic, which is created if it does not exist.
        remote: the server's topic.
        bounds: the bounds of a batch.
        along: called at the end, after the messages.

    Raises:
        RefusedError: the server's topic is another one than before, or removed more messages before they were copied
            than `max_missed`; or others wrote to the topic. Earlier batches are kept.
        BusyError: another sync of the topic runs, the append lease is held, or others kept committing first.
        DamagedError, StorageError: as `RemoteTopic.poll`.
    """
    with _running(opened, remote, bounds) as run:
        run.catch_up()
        along(run.info)
        return run.result("end")


def follow_topic_sync(
    opened: OpenedStream,
    remote: RemoteTopic,
    bounds: SyncBounds = BOUNDS,
    along: Along = no_along,
    stop: Stop = NO_STOP,
) -> TopicSynced:
    """Keep a topic in step with its server until a signal ends this process.

    Args:
        opened: the topic, which is created if it does not exist.
        remote: the server's topic.
        bounds: the bounds of a batch; `linger_s` is the pause between two looks.
        along: called after every look, once its messages are committed.
        stop: in a thread, asks for the end.

    Raises:
        RefusedError, BusyError, DamagedError, StorageError: as `run_topic_sync`.
    """
    with _running(opened, remote, bounds) as run:
        try:
            while True:
                run.catch_up(stop)
                along(run.info)
                stop.sleep(bounds.linger_s)
                run.look()
        except (KeyboardInterrupt, Terminated):
            pass
        return run.result("signal")


@contextmanager
def _running(opened: OpenedStream, remote: RemoteTopic, bounds: SyncBounds) -> Iterator[_TopicRun]:
    """A run that no other sync of the topic disturbs."""
    _refuse_old_profile(opened)
    with lease(opened.root, "sync", opened.clock, wait_s=opened.wait_s):
        info = remote.info()
        run = _TopicRun(opened, remote, bounds, info, start_of(opened, info))
        with naming_progress(run.progress):
            yield run


def _refuse_old_profile(opened: OpenedStream) -> None:
    if topic_of(opened).profile == "v8":
        raise RefusedError(
            f"{opened.name}: profile v8 is for servers of 0.8, which no client of 0.9 reaches; nothing was copied; "
            "import the server's logs with `retention import iggy-log`, or write profile: modern"
        )


class _TopicRun:
    """A run: its position, and the sums so far."""

    def __init__(
        self,
        opened: OpenedStream,
        remote: RemoteTopic,
        bounds: SyncBounds,
        info: TopicInfo,
        start: TopicPosition,
    ) -> None:
        self._opened, self._remote, self._bounds = opened, remote, bounds
        self.info, self.position = info, start
        self._readers: dict[int, PartitionReader] = {}
        self._missed: list[PartitionMissed] = []
        self._messages = self._bytes = self._commits = 0

    def look(self) -> None:
        """Learn the server's new ends.

        Raises:
            RefusedError: it is another topic than at the beginning of the run, or has fewer messages.
        """
        self.info = self._checked(())

    def catch_up(self, stop: Stop = NO_STOP) -> None:
        """Copy everything up to the ends that the server had at the last look."""
        ends = {partition.number: partition.end for partition in self.info.partitions}
        while reads := self._read(ends):
            self._take(reads)
            stop.check()

    def result(self, ended: Ended) -> TopicSynced:
        """The outcome of the run."""
        return TopicSynced(
            stream=self._opened.name,
            origin=f"{self._remote.stream}/{self._remote.topic}",
            created=str(self.info.created_us),
            messages=self._messages,
            bytes=self._bytes,
            commits=self._commits,
            partitions=[
                PartitionSynced(there.number, self.position.at(there.number).next_offset, there.end)
                for there in self.info.partitions
            ],
            missed=self._missed,
            ended=ended,
            notes=list(partition_notes(self._opened, self.info, self.position)),
        )

    def progress(self) -> str:
        """The batches committed before an error; empty: none was."""
        if not self._commits:
            return ""
        return f"{counted(self._messages, 'message')} were copied before, and are kept"

    def _read(self, ends: Mapping[int, int]) -> list[PartitionRead]:
        room = Room(self._bounds.batch_messages, self._bounds.batch_bytes)
        reads = []
        for partition in self.info.partitions:
            number = partition.number
            if number not in self._readers:
                self._readers[number] = PartitionReader(self._opened, self._remote, partition)
            read = self._readers[number].read(self.position.at(number), ends[number], room)
            if read is not None:
                reads.append(read)
        return reads

    def _take(self, reads: Sequence[PartitionRead]) -> None:
        """Commit a batch with the positions after it; a signal waits for its end."""
        with uninterrupted():
            info = self._checked(reads)
            missed = [each for read in reads for each in read.missed]
            self._refuse_missed(missed)
            appended = self._commit(reads, info)
            after = {read.partition: read.position for read in reads}
            commits = (self.position.commits or 0) + 1
            self.position = TopicPosition(commits, {**self.position.partitions, **after})
            self.info = info
            self._missed += missed
            self._messages += appended.messages
            self._bytes += appended.bytes
            self._commits += 1

    def _checked(self, reads: Sequence[PartitionRead]) -> TopicInfo:
        """The server's topic as it is now."""
        info = self._remote.info()
        there = {partition.number: partition for partition in info.partitions}
        positions = {
            **self.position.partitions,
            **{read.partition: read.position for read in reads},
        }
        gone = [
            number
            for number, position in positions.items()
            if number in there
            and (
                there[number].end < position.next_offset
                or position.created_us not in {None, there[number].created_us}
            )
        ]
        if info.created_us != self.info.created_us or gone:
            which = f"partition {gone[0]} of topic {info.name}" if gone else f"topic {info.name}"
            raise RefusedError(
                f"{self._opened.name}: {which} on the server was deleted, made anew or purged meanwhile, or the server "
                "lost its newest messages in a crash; this batch was not committed; run it again, which compares the "
                "messages first"
            )
        return info

    def _refuse_missed(self, missed: Sequence[PartitionMissed]) -> None:
        total = [*self._missed, *missed]
        count = sum(each.count for each in total)
        if count <= self._bounds.max_missed:
            return
        accept = command("sync iggy", self._opened.name, options=f"--max-missed {count}")
        raise RefusedError(
            f"{self._opened.name}: the server removed messages of {self.info.name} before they were copied, by its "
            f"retention or by a request (missed: {'; '.join(map(str, total[:3]))}), and at most "
            f"{self._bounds.max_missed:,} may be missed (max_missed); this batch was not committed; accept the gap "
            f"({accept}), and sync more often or raise the limits"
        )

    def _commit(self, reads: Sequence[PartitionRead], info: TopicInfo) -> Appended:
        opened, position = self._opened, self.position
        after = {read.partition: read.position for read in reads}
        counters = counters_after(info, position, after)
        with appending(opened, position.identity, "sync") as append:
            for attempt in append.attempts_at_end():
                refuse_moved(opened, attempt.end, position)
                append.commit(_staged(opened, attempt, reads, counters))
        if append.done.duplicate:
            raise BusyError(
                f"{opened.name}: another sync of it committed meanwhile; each message was stored once; let one run at "
                "a time"
            )
        return append.done


def _staged(
    opened: OpenedStream,
    attempt: AppendAttempt,
    reads: Sequence[PartitionRead],
    counters: Mapping[str, int],
) -> Staged:
    """Write the messages to files, and return them with the positions after them, and with these counters."""
    policy = topic_of(opened).policy()
    staged = Staged((), {}, {}, counters)
    for read in reads:
        placed, tail = _placed(read, attempt.end.tail(read.partition), policy)
        stats = write_segments(attempt.staging, _pieces(opened.name, read, placed))
        active = {read.partition: tail.active.base} if tail.active else {}
        staged = replace(
            staged,
            stats=[*staged.stats, *stats],
            next_seq={**staged.next_seq, read.partition: read.position.next_offset},
            open_base={**staged.open_base, **active},
        )
    return staged


def _placed(
    read: PartitionRead, tail: Tail, policy: TopicPolicy
) -> tuple[list[AppendedBatch], Tail]:
    """The server's batches in segments, and the end of the partition after them."""
    seqs, sizes, ts_ns = (read.rows[name].to_numpy() for name in ("seq", "size", "ts_ns"))
    starts = batch_starts(ts_ns).tolist()
    batches = [
        AppendedBatch(
            0,
            start,
            end,
            int(seqs[start]),
            int(ts_ns[start]) // MICROSECOND,
            int(sizes[start:end].sum()),
        )
        for start, end in zip(starts, [*starts[1:], len(seqs)], strict=True)
    ]
    return place_stored(tail, batches, policy, is_end=read.is_end)


def _pieces(
    topic: str, read: PartitionRead, placed: Sequence[AppendedBatch]
) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """Rows cut at segment boundaries, each piece with its partition and segment, shape `FILE_COLUMNS`."""
    begin = 0
    for batch, following in zip(placed, [*placed[1:], None], strict=True):
        if following is None or following.base != batch.base:
            rows = read.rows.slice(begin, batch.end - begin)
            yield (read.partition, batch.base), with_topic(rows, topic)
            begin = batch.end
