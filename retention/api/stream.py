"""One stream of the Python API: publishing, single messages, last values, consumers and NATS backups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from retention.api.erasing import (
    DELETED,
    PlannedErasure,
    erasures_shown,
    planned_erasure,
    resumed,
)
from retention.api.log import BoundPlan, Log
from retention.api.repairs import Instant
from retention.api.stream_consumers import StreamConsumers
from retention.apply.erase import ErasureRequest
from retention.core.accepted_times import accepted_times
from retention.core.arguments import checked_class
from retention.core.units import parse_as_of
from retention.delivery.consumer import BatchConsumer
from retention.engines.select import Engines
from retention.formats.jsonl import Given, LeaveOut, open_lines
from retention.ingest.idempotency import batch_identity
from retention.ingest.import_nats import Imported, import_nats_backup
from retention.ingest.publish import publish
from retention.ingest.published import Published
from retention.inspect.latest import latest_of
from retention.inspect.nats_export import Exported, export_nats_backup
from retention.inspect.replay import replay_stream
from retention.replay.result import replay_request
from retention.rules.erase import erased_messages
from retention.rules.requests import delete_request
from retention.views.notebook import ShownErasure, ShownLatest, ShownReplay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from retention.ingest.sync.result import Synced
    from retention.ingest.sync.session import SyncOptions


@checked_class
class Stream(Log):
    """A stream of a warehouse."""

    def publish(
        self,
        lines: Given,
        writer: str | None = None,
        batch: int | None = None,
        leave_out: LeaveOut | None = None,
        *,
        any_time: bool = False,
    ) -> Published:
        """Publish messages as one commit: all of them, or none with the reason.

        Args:
            lines: JSON lines or the `Path` of a file of them, objects with `subject`, `data` or `data_b64`, `headers`,
                `ts_ns`; a frame of pandas, Polars or DuckDB, or an Arrow table, with columns `subject`, `payload`, and
                optionally `headers` and `ts_ns` (whole nanoseconds) or `time` (timestamps with a zone); dicts with the
                keys of either.
            writer: with `batch`, makes the batch exactly once.
            batch: a number that rises with every batch of the writer; a number not above the last writes nothing.
            leave_out: called with the refused lines (`line`, `reason`, `code`) before the others are committed; without
                it the first one refuses the batch.
            any_time: accept times before 1990, which are otherwise refused as being in a wrong unit, such as
                milliseconds in `ts_ns`.

        Raises:
            UsageError: a line, or row, is not a message, or its time is refused; the error gives its number.
            RefusedError: the broker would refuse a message.
        """
        identity = batch_identity(writer, batch)
        with open_lines(lines) as source:
            return publish(
                self.opened, source, identity, leave_out, accepted_times(any_time=any_time)
            )

    def replay(self, at: Iterable[Instant] = (None,), **settings: object) -> ShownReplay:
        """Replay the stream as raw publishes: what a server with these limits from the start would have held, and when.

        Args:
            at: the instants to look at, such as `now-1d`; the last one ends the replay. Nothing is published after the
                last message.
            settings: limits instead of the configured ones, with the keys and values of the configuration:
                `replay(max_msgs=2, max_msgs_per_subject=1)`.

        Raises:
            UsageError: a setting is not one that a replay knows, or not valid; or the stream was never written to.
            RefusedError: what such a stream holds depends on more than publishes and limits, such as consumers.
            DamagedError: a file is damaged.
        """
        request = replay_request(settings, at, self.opened.clock())
        with Engines(self.engine) as engines:
            replay = replay_stream(self.opened, engines, request)
        return ShownReplay(**vars(replay))

    @overload
    def delete(self, *seqs: int | Iterable[int], erase: Literal[False] = False) -> BoundPlan: ...

    @overload
    def delete(self, *seqs: int | Iterable[int], erase: Literal[True]) -> PlannedErasure: ...

    def delete(self, *seqs: int | Iterable[int], erase: bool = False) -> BoundPlan | PlannedErasure:
        """Plan the removal of single messages; `apply` of the plan carries it out.

        Args:
            seqs: their sequences, one by one or several together: `delete(1, 2)`, `delete([1, 2])`.
            erase: leave no copy of them, as `erase(seqs=…)`; it cannot be undone.

        Raises:
            UsageError: one of them is not in the stream.
            RefusedError: the stream is sealed, or denies deletes; or as `erase`.
        """
        wanted = tuple(chain.from_iterable(map(_several, seqs)))
        if erase:
            return self.erase(seqs=wanted, reason=DELETED)
        return self._removal(delete_request(wanted))

    def erase(
        self,
        subject: str | None = None,
        *,
        subjects: Iterable[str] = (),
        seqs: int | Iterable[int] = (),
        reason: str,
        by: Instant = None,
    ) -> PlannedErasure:
        """Plan to erase messages, so that no copy of them is left; `apply` carries it out, and nothing undoes it.

        Args:
            subject: a filter of subjects, with `*` for one token and a last `>` for one or more.
            subjects: many filters; each file is rewritten once.
            seqs: sequences instead of subjects.
            reason: kept encrypted until the erasure is done, then as a keyed hash.
            by: the instant by which it has to be done, which `erasures` shows.

        Raises:
            UsageError: nothing is named, or no file has a message with a given sequence.
            RefusedError: a legal hold covers a message; the stream is sealed, denies deletes, or has an archive.
        """
        named = [*subjects, *([] if subject is None else [subject])]
        by_ns = None if by is None else parse_as_of(by, self.opened.clock())
        request = ErasureRequest(erased_messages(named, _several(seqs)), reason, by_ns)
        return planned_erasure(self.opened, self.engine, request)

    def erasures(self) -> list[ShownErasure]:
        """The erasures of the stream, oldest first, with what is left of each."""
        return erasures_shown(self.opened)

    def resume_erasures(self, *, archives_gone: Iterable[str] = ()) -> list[ShownErasure]:
        """Go on with the erasures that are unfinished; any run that maintains the stream does so, too.

        Args:
            archives_gone: archives of the stream that no longer exist; the erasures record that you said so.

        Raises:
            UsageError: one is no archive of the stream.
        """
        return resumed(self.opened, self.engine, list(archives_gone))

    def latest(self, subject: str | None = None) -> ShownLatest:
        """The last value of each subject, in batches, as a DataFrame, or shown; deletions are included and marked.

        Args:
            subject: a filter, with `*` for one token and a last `>` for one or more.

        Raises:
            UsageError: it is not a filter.
        """
        return ShownLatest(**vars(latest_of(self.opened, subject)))

    @property
    def consumers(self) -> StreamConsumers:
        """The stream's consumers: show, add, update, remove, fold ack logs."""
        return StreamConsumers(self.opened, self.engine)

    def consumer(self, name: str) -> BatchConsumer:
        """Process a consumer's messages: fetch them in batches, and acknowledge them.

        Raises:
            UsageError: there is no such consumer.
            RefusedError: it is a push consumer, has priorities, or feeds another stream.
        """
        return BatchConsumer(self.opened, name)

    def import_nats_backup(self, path: str | Path, *, strict: bool = False) -> Imported:
        """Import a NATS backup into this stream, which must never have contained anything else.

        Args:
            path: the archive, or the directory that `nats stream backup` made.
            strict: refuse a backup whose messages were partly removed while the server wrote it. By default it is
                accepted as RESTORE does, and `Imported.differences` lists the differences.

        Raises:
            DamagedError: it is not a backup, is truncated, or no server restores it; or it differs, and `strict` is
                set.
            RefusedError: the stream contains, or contained, other messages.
        """
        return import_nats_backup(self.opened, path, strict=strict)

    def sync(self, options: SyncOptions | None = None) -> Synced:
        """Bring the stream up to the last sequence that its server has now; it has `sync` in its configuration.

        Args:
            options: the connection and the bounds, `retention.ingest.sync.session.SyncOptions`; None: those of the
                configuration.

        Raises:
            UsageError: it has no `sync`, or an option is wrong.
            RefusedError: the server's stream is another one than before, cannot be synced or cannot be reached, or
                removed more messages before they were copied than may be missed. Earlier batches are kept.
            BusyError: another sync of the stream runs.
        """
        from retention.ingest.sync.session import OPTIONS, sync_stream

        return sync_stream(self.opened, options or OPTIONS)

    def sync_frame(self, frame: DataFrame, options: SyncOptions | None = None) -> Synced:
        """Copy rows that Spark read from the server that `sync` names in the stream's configuration, as one commit.

        Sequences, times, headers and payloads stay as they are. The server's position is in the commit, as `sync` keeps
        it: rows that are here already add nothing, and `sync` goes on after the last row.

        Args:
            frame: all rows of `spark.read.format("nats")` from the position on, with all their columns.
            options: the connection, and what may be missed; None: those of the configuration.

        Raises:
            UsageError: as `sync`; or a column is missing or of another type, or two rows have one sequence.
            RefusedError: as `sync`; or the rows are of another stream, or leave out messages that the server holds.
            BusyError: another sync of the stream runs.
        """
        from retention.ingest.sync.session import OPTIONS, sync_frame

        return sync_frame(self.opened, frame, options or OPTIONS)

    def sync_sink(self, options: SyncOptions | None = None) -> Callable[[DataFrame, int], None]:
        """A function for `foreachBatch` of a query that reads the stream's server: each message is copied exactly once.

        The query's options, `maxMessagesPerTrigger` first, bound its commits. It may be killed at any moment.

        Args:
            options: as for `sync_frame`.
        """

        def copy_batch(frame: DataFrame, _batch: int) -> None:
            self.sync_frame(frame, options)

        return copy_batch

    def export_nats_backup(self, target: str | Path) -> Exported:
        """Write a NATS backup that a server restores: an archive, or a directory for `nats stream restore`.

        Raises:
            RefusedError: the target already exists.
        """
        return export_nats_backup(self.opened, target)


def _several(seqs: int | Iterable[int]) -> Iterable[int]:
    return [seqs] if isinstance(seqs, int) else seqs
