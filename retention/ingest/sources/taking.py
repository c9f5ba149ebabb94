"""Taking the new rows of a source, batch by batch, each exactly once even if a process is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from retention.context.context import OpenedStream
from retention.core.wording import counted
from retention.datafile.segment_writer import Staged
from retention.errors import BusyError, RefusedError
from retention.ingest.append import Appended, appending
from retention.ingest.idempotency import BatchIdentity, NextBatch
from retention.ingest.progress import naming_progress
from retention.ingest.sources.backlog import Backlog, Batch, FilesBatch, SourceReader
from retention.ingest.sources.positions import Position
from retention.ingest.sources.records import Records
from retention.ingest.sources.spark_checkpoint import SparkCheckpoint

WRITER = "ingest/"
"""The prefix of a source's location, under which a stream's log keeps the number of that source's last batch."""


@dataclass(frozen=True)
class TakenSoFar:
    """The batch and position up to which a source was taken, by the stream's log and the records."""

    batch: int | None
    """The number of the last batch; None: nothing was taken."""
    position: Position | None
    checkpoint: SparkCheckpoint | None = None
    """The record of an earlier release, if there is no newer one."""
    counted: int | None = None
    """The batch's number in the log now; None: the log's counters have restarted since, or nothing was taken."""


class Taking:
    """One source that is being taken into a stream.

    Args:
        opened: the stream or topic.
        location: the source's, in the spelling under which it was taken before.
        reader: the part that needs Spark.
    """

    def __init__(
        self, opened: OpenedStream, location: str, reader: Callable[[], SourceReader]
    ) -> None:
        self._opened = opened
        self._location = location
        self._writer = f"{WRITER}{location}"
        self._records = Records.of(opened, location)
        self._reader = reader

    def so_far(self) -> TakenSoFar:
        """The batch and position up to which the source was taken.

        Raises:
            RefusedError: the stream has rows of it, but the position is lost.
            DamagedError: a record cannot be read.
        """
        checkpoint = SparkCheckpoint(self._records.directory)
        if not self._opened.table.exists():
            return TakenSoFar(None, None)
        counters = self._opened.store.snapshot().counters
        last = counted = counters.batches.get(self._writer)
        if last is None:
            # A purge of a topic restarts counters, and does not return rows to the source.
            last = self._records.last(self._opened.table.lifetime().generation)
            if last is None and counters.epoch > self._opened.table.lifetime().generation:
                last = checkpoint.last_batch()
        if last is None:
            return TakenSoFar(None, None)
        if self._records.has(last):
            return TakenSoFar(last, self._records.read(last), counted=counted)
        if checkpoint.exists():
            return TakenSoFar(last, None, checkpoint, counted)
        raise RefusedError(
            f"{self._opened.name}: rows of {self._location} were taken before, but the position is lost with "
            f"{self._records.directory}; nothing was read, so that no row is taken twice; restore that folder from a "
            "copy, or append the missing rows from a table that holds only them"
        )

    def take(self, known: TakenSoFar, backlog: Backlog) -> list[Appended]:
        """Take the whole backlog; return the outcome of each batch.

        Raises:
            BusyError: another run took some of it, or a file changed.
            RetentionError: as the reader's `append`; earlier batches are kept.
        """
        done: list[Appended] = []
        last, before = known.batch, known.counted
        for position, append in self._steps(backlog):
            number: int | None = None

            def identify(
                position: Position = position,
                last: int | None = last,
                after: int | None = before,
            ) -> BatchIdentity:
                nonlocal number
                number = self._records.write(position, last)
                return NextBatch(self._writer, number, after=after)

            with naming_progress(partial(self._progress, done)):
                appended = append(identify)
                if appended.duplicate or number is None:
                    raise BusyError(
                        f"{self._opened.name}: another run took rows of {self._location} meanwhile; each was appended "
                        "once; run it again"
                    )
                done.append(appended)
                self._records.settle(number, self._opened.table.lifetime().generation)
            last = before = number
        return done

    def _progress(self, done: Sequence[Appended]) -> str:
        """The messages appended so far; empty: none."""
        messages = sum(appended.messages for appended in done)
        came = (
            f"{counted(messages, 'message')} of {self._location} were appended before, and are kept"
        )
        return came if messages else ""

    def _steps(
        self, backlog: Backlog
    ) -> Iterator[tuple[Position, Callable[[Callable[[], BatchIdentity]], Appended]]]:
        """The commits to make: each with the position after it, and the function that makes it."""
        if backlog.moved is not None and not backlog.has_rows:
            yield backlog.moved, self._append_nothing
        if backlog.has_rows:
            reader = self._reader()
            for batch in backlog.batches(reader):
                yield batch.position, _step_of(reader, batch, self._append_nothing)

    def _append_nothing(self, identify: Callable[[], BatchIdentity]) -> Appended:
        """Commit a new position without rows."""
        with appending(self._opened, identify()) as append:
            for _ in append.attempts():
                append.commit(Staged([], {}, {}))
        return append.done


def _step_of(
    reader: SourceReader,
    batch: Batch,
    append_nothing: Callable[[Callable[[], BatchIdentity]], Appended],
) -> Callable[[Callable[[], BatchIdentity]], Appended]:
    def step(identify: Callable[[], BatchIdentity]) -> Appended:
        def checked() -> BatchIdentity:
            batch.check()
            return identify()

        if isinstance(batch, FilesBatch) and not batch.parts:
            return append_nothing(checked)
        return reader.append(batch, checked)

    return step
