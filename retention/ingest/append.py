"""Appending to a log: under its lease, find the log's end, stage messages after it, and commit them once."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa

from retention.apply.archive_place import note_place_or_warn
from retention.config import StreamConfig
from retention.context.context import OpenedStream
from retention.context.log_end import LogEnd, last_commit
from retention.context.own_end import KnownEnd
from retention.context.ownership import note_owner
from retention.context.position import Position, locate
from retention.context.topic import refuse_topic
from retention.core.display import Displayed
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.table_requirements import AssertHoldEdits
from retention.core.table_updates import (
    set_batches,
    set_next_seqs,
    set_open_bases,
    set_removed,
)
from retention.datafile import parquet
from retention.datafile.row_groups import merged_by_seq, rows_in_order
from retention.datafile.segment_writer import PARTITION, Staged, Staging, stage_rows, with_sequences
from retention.dialects.jetstream import JetStream
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ConflictError,
    ImpossibleNumbersError,
    RefusedError,
    RetentionError,
    StalePlanError,
    UsageError,
)
from retention.ingest.idempotency import BatchIdentity, is_repeat
from retention.ingest.recorded_commit import Removal, commit_removal
from retention.ingest.turns import ONE_BY_ONE, Turns
from retention.layout.segment_roll import Tail
from retention.ports import Swap
from retention.schemas.files import LOGGED_FILES, FileStats
from retention.schemas.messages import FILE_COLUMNS
from retention.stores.topic_settings import keep_settings


def refuse_topic_of(config: StreamConfig) -> None:
    """Refuse to append messages of a stream to a topic.

    Raises:
        UsageError: the stream is a topic.
    """
    refuse_topic(
        config,
        "which accepts no messages from streams or their backups",
        "publish or append to it, import the logs of an Iggy server with `retention import iggy-log DIR --topic "
        f"{config.name}`, or name a stream",
    )


def refuse_synced(config: StreamConfig) -> None:
    """Refuse to write anything but its server's messages to a stream that is kept in step with a live server.

    Raises:
        UsageError: the stream has `sync` in its configuration.
    """
    if config.sync is not None:
        raise UsageError(
            f"{config.name}: it is kept in step with a live server (sync), so that others' messages would take "
            "sequences of that server; nothing was written; publish to the server, or into another stream"
        )
    if config.topic is not None and config.topic.sync is not None:
        raise UsageError(
            f"{config.name}: it is kept in step with a live server (sync), so that others' messages would take "
            "offsets of that server; nothing was written; publish to the server, or into another topic"
        )


@dataclass(frozen=True)
class Appended(Displayed):
    """The outcome of an append; without messages `last_seq` is `first_seq - 1`."""

    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    version: int
    duplicate: bool = False
    """Whether the writer's batch was already committed, and nothing was written."""
    removed: int = 0
    """Stored messages that a roll-up removed."""
    partitions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Of a topic: partition → first and last offset; `first_seq` and `last_seq` are the lowest and highest of them."""
    order_by: tuple[str, ...] = ()
    """The columns of a frame that ordered its rows; empty: rows are ordered by time."""
    left_out: tuple[str, ...] = ()
    """The columns of a frame that contribute nothing to any message."""


def append_rows(
    opened: OpenedStream,
    batches: Iterable[pa.Table],
    identity: BatchIdentity | None = None,
) -> Appended:
    """Append rows in the given order, in bounded memory; each segment gets one file, or several split by deadline.

    Args:
        opened: the stream; it is created if it does not exist.
        batches: tables with the columns of `FILE_COLUMNS` but `seq`, as `rows.complete` makes them.
        identity: makes the append exactly once.

    Raises:
        UsageError: it is a topic.
        BusyError: the append lease is held, or other writers kept committing first.
        VerificationError: the staged files differ from what was written; nothing was committed.
    """
    refuse_topic_of(opened.config)
    refuse_synced(opened.config)
    dialect = JetStream.of(opened.config)
    with appending(opened, identity) as append:
        for attempt in append.attempts_at_end():
            tail, staging = attempt.end.tail(PARTITION), attempt.staging
            staged = stage_rows(staging, with_sequences(batches, tail.next_seq), dialect.ends(tail))
            # Read back only after a lost race: the caller's batches may be an iterator, already exhausted.
            written = staging.named({row["path"] for row in staged.stats})
            batches = (rows.drop_columns(["seq"]) for rows in staged_rows(written))
            append.commit(staged)
    return append.done


@dataclass(frozen=True)
class AppendAttempt:
    """One attempt to append, from the current end of the table."""

    end: LogEnd
    """The end of the log."""
    staging: Staging
    """The factory of the files that the attempt writes."""

    @property
    def position(self) -> Position:
        """The end as it was read from the table, which an attempt at the end may not have done."""
        if not isinstance(self.end, Position):
            raise TypeError("the table was not opened")
        return self.end


@contextmanager
def appending(
    opened: OpenedStream,
    identity: BatchIdentity | None = None,
    act: str = "append",
    turns: Turns = ONE_BY_ONE,
) -> Iterator[Append]:
    """Append to a log during the block; attempts follow one another until one is committed.

    If the block raises, nothing is kept. The usual form of an append:

        with appending(opened, identity) as append:
            for attempt in append.attempts():
                ...  # check messages and give them sequences after attempt.position, write them to attempt.staging
                append.commit(staged)
        return append.done

    Args:
        opened: the stream or topic; its table is created if it does not exist. A dropped table is replaced by a new one
            only if there is something to commit, not if all messages are refused.
        identity: makes the append exactly once.
        act: the prefix of its run's name in the log.
        turns: how writers of the same log take turns.

    Raises:
        BusyError: the append lease is held, or other writers kept committing first.
        RefusedError: the messages would get sequences beyond the valid range.
        CommitUnknownError: the storage failed while committing; the staged files are kept.
    """
    with turns.held(opened), ExitStack() as lost:
        append = Append(opened, identity, f"{act}-{uuid.uuid4().hex}", turns, lost)
        try:
            with labelled(run=append.run):
                yield append
        except BaseException as error:
            if append.under_way is None:
                raise
            append.under_way.staging.discard()
            if not isinstance(error, ImpossibleNumbersError):
                raise
            raise RefusedError(
                f"{opened.name}: the messages would get sequences beyond 2^62, where sequences end; nothing was "
                "appended; continue in a new stream"
            ) from error


def ready_tail(opened: OpenedStream) -> Tail:
    """The end of a stream for files that an append will commit later; its table is created as `appending` does."""
    _create_unless_dropped(opened)
    return locate(opened).tail(PARTITION)


def _create_unless_dropped(opened: OpenedStream) -> None:
    if opened.table.lifetime().dropped_ns is None:
        opened.store.create()


class Append:
    """One append; see `appending`."""

    def __init__(
        self,
        opened: OpenedStream,
        identity: BatchIdentity | None,
        run: str,
        turns: Turns,
        lost: ExitStack,
    ) -> None:
        self.opened = opened
        self._identity = identity
        self._turns = turns
        self._lost = lost
        self.run = run
        """The name of the append in the log."""
        self._done: Appended | None = None
        self.under_way: AppendAttempt | None = None
        """The attempt that has not committed yet."""

    @property
    def done(self) -> Appended:
        """The outcome, once an attempt was committed or the batch proved to be a repeat."""
        if self._done is None:
            raise AssertionError("no attempt was committed")
        return self._done

    def attempts(self) -> Iterator[AppendAttempt]:
        """Attempts to append, each from the table's current end; none if the batch was already committed.

        Raises:
            RefusedError: the batch is a streaming query's, and it is unknown whether it was committed.
            BusyError: other writers kept committing first.
        """
        self.opened.own_end.keep(None)
        return self._attempts(None)

    def attempts_at_end(self) -> Iterator[AppendAttempt]:
        """Attempts of an append that looks at no stored message: the table is opened only if others committed last.

        Raises:
            RefusedError, BusyError: as `attempts`.
            LostCommitError: another program overwrote a commit of ours in the log.
        """
        return self._attempts(self.opened.own_end.take())

    def _attempts(self, known: KnownEnd | None) -> Iterator[AppendAttempt]:
        """Attempts to append, the first of them at an end that is known."""
        opened, number = self.opened, 0
        for number in self._turns.attempts():
            end, known = known or self._read_end(number), None
            if is_repeat(opened.name, end.counters, self._identity):
                self._done = replace(appended_of(opened, end, ()), duplicate=True)
                return
            staging = Staging(opened.store, opened.config.most_files)
            self.under_way = AppendAttempt(end, staging)
            yield self.under_way
            if self._done is not None:
                return
        raise BusyError(
            f"{opened.name}: other writers committed first {number + 1} times in a row; nothing was appended; try "
            "again, or pause the other writers"
        )

    def _read_end(self, number: int) -> Position:
        """The end at the table's newest version; the table is created before."""
        if number:
            # The stream is dropped, or was dropped by the commit that came first.
            self.opened.store.create()
        else:
            _create_unless_dropped(self.opened)
        return locate(self.opened)

    def commit(self, staged: Staged, removal: Removal | None = None) -> None:
        """Commit the staged files of the current attempt; after a lost race another attempt follows.

        Args:
            staged: the messages.
            removal: the removal of the messages that they replace; None: they replace none.

        Raises:
            BusyError, VerificationError: as `Store.commit`; the staged files are deleted.
            CommitUnknownError: the storage failed while committing; the staged files are kept.
        """
        attempt, self.under_way = self.under_way, None
        if attempt is None:
            raise AssertionError("only an attempt can be committed")
        end, done = attempt.end, appended_of(self.opened, attempt.end, staged.stats)
        try:
            keep_settings(self.opened.root, self.opened.config)
            if end.is_empty:
                note_owner(self.opened)
            note_place_or_warn(self.opened)
            if self._identity is None and not _uses_sequences(end, staged):
                self._done = done
                return
            version = self._swap(attempt, staged, removal)
            if removal is None:
                self.opened.own_end.keep(last_commit(self.opened, end, staged, self.run))
        except (ConflictError, StalePlanError):
            # Kept until the next attempt has reread its rows from them.
            self._lost.callback(attempt.staging.discard)
            return
        except CommitUnknownError:
            raise
        except RetentionError:
            attempt.staging.discard()
            raise
        self.opened.store.finish()
        removed = removal.plan.removed_messages if removal else 0
        self._done = replace(done, version=version, removed=removed)

    def _swap(self, attempt: AppendAttempt, staged: Staged, removal: Removal | None) -> int:
        """Commit staged files against the end that they were written for; return the new version."""
        end = attempt.end
        swap = Swap(
            remove=LOGGED_FILES.empty_table(),
            add=parquet.stats_table(staged.stats),
            metadata={"run": self.run, "messages": staged.messages},
            requirements=([AssertHoldEdits(end.counters.holds)] if staged.unstored else []),
            updates=[
                *set_next_seqs(staged.next_seq),
                *set_open_bases(staged.open_base),
                *set_batches(
                    {**staged.batches, **(self._identity.batches if self._identity else {})}
                ),
            ],
        )
        if removal is None:
            swap = replace(swap, updates=[*swap.updates, *set_removed(staged.unstored)])
            if isinstance(end, KnownEnd):
                return end.head.append(swap)
            return self.opened.store.commit(swap, end.snapshot)
        snapshot = attempt.position.snapshot
        return commit_removal(self.opened, swap, removal, staged.unstored, snapshot)


def appended_of(opened: OpenedStream, end: LogEnd, stats: Sequence[FileStats]) -> Appended:
    """The outcome for messages in files with these statistics; the version is the one before them."""
    reach: dict[int, tuple[int, int]] = {}
    for row in stats:
        low, high = reach.get(row["partition"], (row["min_seq"], row["max_seq"]))
        reach[row["partition"]] = min(low, row["min_seq"]), max(high, row["max_seq"])
    is_topic = opened.dialect.is_topic
    empty = opened.dialect.first_seq if is_topic else end.next_seq
    first_seq = min((low for low, _ in reach.values()), default=empty)
    return Appended(
        first_seq=first_seq,
        last_seq=max((high for _, high in reach.values()), default=first_seq - 1),
        messages=sum(row["messages"] for row in stats),
        bytes=sum(row["bytes"] for row in stats),
        version=end.version,
        partitions=dict(sorted(reach.items())) if is_topic else {},
    )


def _uses_sequences(end: LogEnd, staged: Staged) -> bool:
    """Whether sequences are used, even if nothing is stored."""
    return any(seq != end.tail(number).next_seq for number, seq in staged.next_seq.items())


def staged_rows(files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows of staged files, in order and in batches."""
    for _, inside in groupby(files, key=lambda file: file.segment):
        yield from merged_by_seq([rows_in_order(file, FILE_COLUMNS.names) for file in inside])
