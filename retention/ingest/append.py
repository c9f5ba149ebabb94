"""Appending to a log: under its lease find where it stands, stage messages behind that, and commit them once."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa

from retention.apply.archive_place import note_first_place
from retention.config import StreamConfig
from retention.context.context import OpenedStream
from retention.context.ownership import note_owner
from retention.context.position import Position, locate
from retention.context.topic import refuse_topic
from retention.core.inventory import DataFile
from retention.core.labels import labelled
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
)
from retention.ingest.idempotency import BatchIdentity, is_repeat
from retention.ingest.recorded_commit import commit_removal
from retention.ingest.turns import ONE_BY_ONE, Turns
from retention.ports import Swap
from retention.stores.topic_settings import keep_settings
from schemas.files import LOGGED_FILES
from schemas.messages import FILE_COLUMNS


def refuse_topic_of(config: StreamConfig) -> None:
    """Refuse to put messages of a stream into a topic.

    Raises:
        UsageError: the stream is a topic.
    """
    refuse_topic(
        config,
        "which takes nothing from streams and their backups",
        "publish or append to it, import the logs of an Iggy server with `retention import iggy-log DIR --topic "
        f"{config.name}`, or name a stream",
    )


@dataclass(frozen=True)
class Appended:
    """The outcome of an append; without messages `last_seq` is `first_seq - 1`."""

    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    version: int
    duplicate: bool = False
    """The writer's batch was there already, and nothing was written."""
    removed: int = 0
    """Messages that were there before, and that a roll-up took."""
    partitions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Of a topic: partition → first and last offset; `first_seq` and `last_seq` are the lowest and highest of them."""
    order_by: tuple[str, ...] = ()
    """The columns of a frame by which its rows got their sequences; empty: by their times."""
    left_out: tuple[str, ...] = ()
    """The columns of a frame that no message has anything of."""


def append_rows(
    opened: OpenedStream,
    batches: Iterable[pa.Table],
    identity: BatchIdentity | None = None,
) -> Appended:
    """Append rows in the order given, in bounded memory, for each segment one file or some apart by deadline.

    Args:
        opened: the stream; it is created if it does not exist.
        batches: tables with the columns of `FILE_COLUMNS` but `seq`, as `rows.complete` makes them.
        identity: makes the append exactly once.

    Raises:
        UsageError: it is a topic.
        BusyError: the append lease is held, or rivals kept committing first.
        VerificationError: the staged files do not hold what was written; nothing was committed.
    """
    refuse_topic_of(opened.config)
    dialect = JetStream.of(opened.config)
    with appending(opened, identity) as append:
        for attempt in append.attempts():
            tail, staging = attempt.position.tail(PARTITION), attempt.staging
            staged = stage_rows(staging, with_sequences(batches, tail.next_seq), dialect.ends(tail))
            # Read only after a lost race: what the caller gave may be an iterator, and is spent.
            batches = _rows_of(staging.named({row["path"] for row in staged.stats}))
            append.commit(staged)
    return append.done


@dataclass(frozen=True)
class Attempt:
    """One attempt to append: from where the table stands."""

    position: Position
    staging: Staging
    """The source of the files that the attempt writes."""


@contextmanager
def appending(
    opened: OpenedStream,
    identity: BatchIdentity | None = None,
    act: str = "append",
    turns: Turns = ONE_BY_ONE,
) -> Iterator[Append]:
    """Append to a log during the block, whose attempts follow one another until one is committed.

    What the block raises leaves nothing behind. Every append reads so:

        with appending(opened, identity) as append:
            for attempt in append.attempts():
                ...  # check messages and give them sequences behind attempt.position, write them to attempt.staging
                append.commit(staged)
        return append.done

    Args:
        opened: the stream or topic; its table is created if it does not exist. In the place of a dropped one another is
            begun by what has something to commit, not by messages that are all refused.
        identity: makes the append exactly once.
        act: what its run is called after in the log.
        turns: how it comes to its turn among rivals.

    Raises:
        BusyError: the append lease is held, or rivals kept committing first.
        RefusedError: the messages would get sequences that no message can have.
        CommitUnknownError: the storage failed while committing; the staged files stay.
    """
    with turns.held(opened), ExitStack() as lost:
        if opened.store.dropped_ns() is None:
            opened.store.create()
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
                "appended; go on in a new stream"
            ) from error


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
        self.under_way: Attempt | None = None
        """The attempt that has not come to its commit."""

    @property
    def done(self) -> Appended:
        """The outcome, once an attempt was committed, or the batch was there already."""
        if self._done is None:
            raise AssertionError("no attempt was committed")
        return self._done

    def attempts(self) -> Iterator[Attempt]:
        """Attempts to append, each from where the table stands by then; none if the batch is there already.

        Raises:
            RefusedError: the batch is a streaming query's, and nobody can tell whether it is there.
            BusyError: rivals kept committing first.
        """
        opened, number = self.opened, 0
        for number in self._turns.attempts():
            if number:
                # The stream is dropped, or was dropped meanwhile, if that is what came first.
                opened.store.create()
            position = locate(opened)
            if is_repeat(opened.name, position.snapshot, self._identity):
                self._done = replace(appended_of(opened, position, ()), duplicate=True)
                return
            staging = Staging(opened.store, opened.config.most_files)
            self.under_way = Attempt(position, staging)
            yield self.under_way
            if self._done is not None:
                return
        raise BusyError(
            f"{opened.name}: other writers committed first {number + 1} times in a row; nothing was appended; try "
            "again, or pause the other writers"
        )

    def commit(self, staged: Staged) -> None:
        """Commit what the attempt under way has staged; after a lost race another attempt follows.

        Raises:
            BusyError, VerificationError: as `Store.commit`; the staged files are deleted.
            CommitUnknownError: the storage failed while committing; the staged files stay.
        """
        attempt, self.under_way = self.under_way, None
        if attempt is None:
            raise AssertionError("only an attempt can be committed")
        done = appended_of(self.opened, attempt.position, staged.stats)
        try:
            keep_settings(self.opened.root, self.opened.config)
            if not attempt.position.inventory.files.num_rows:
                note_owner(self.opened)
            note_first_place(self.opened)
            if self._identity is None and not _uses_sequences(attempt.position, staged):
                self._done = done
                return
            version = self._swap(attempt.position, staged)
        except (ConflictError, StalePlanError):
            # Kept until the next attempt has read its rows from them.
            self._lost.callback(attempt.staging.discard)
            return
        except CommitUnknownError:
            raise
        except RetentionError:
            attempt.staging.discard()
            raise
        self.opened.store.finish()
        removed = staged.removal.messages if staged.removal else 0
        self._done = replace(done, version=version, removed=removed)

    def _swap(self, position: Position, staged: Staged) -> int:
        """Commit staged files on what they rest on; return the new version."""
        swap = Swap(
            remove=LOGGED_FILES.empty_table(),
            add=parquet.stats_table(staged.stats),
            metadata={"run": self.run, "messages": staged.messages},
            updates=[
                *set_next_seqs(staged.next_seq),
                *set_open_bases(staged.open_base),
                *set_batches(
                    {**staged.batches, **(self._identity.batches if self._identity else {})}
                ),
            ],
        )
        if staged.removal is None:
            swap = replace(swap, updates=[*swap.updates, *set_removed(staged.unstored)])
            return self.opened.store.commit(swap, position.snapshot)
        return commit_removal(self.opened, swap, staged.removal, staged.unstored, position.snapshot)


def appended_of(
    opened: OpenedStream, position: Position, stats: Sequence[Mapping[str, int]]
) -> Appended:
    """The answer for messages in files of these statistics (`FILE_STATS`); the version is that before them."""
    reach: dict[int, tuple[int, int]] = {}
    for row in stats:
        low, high = reach.get(row["partition"], (row["min_seq"], row["max_seq"]))
        reach[row["partition"]] = min(low, row["min_seq"]), max(high, row["max_seq"])
    is_topic = opened.dialect.is_topic
    empty = opened.dialect.first_seq if is_topic else position.next_seq
    first_seq = min((low for low, _ in reach.values()), default=empty)
    return Appended(
        first_seq=first_seq,
        last_seq=max((high for _, high in reach.values()), default=first_seq - 1),
        messages=sum(row["messages"] for row in stats),
        bytes=sum(row["bytes"] for row in stats),
        version=position.snapshot.version,
        partitions=dict(sorted(reach.items())) if is_topic else {},
    )


def _uses_sequences(position: Position, staged: Staged) -> bool:
    """Whether sequences are used, also where nothing is stored."""
    return any(seq != position.tail(number).next_seq for number, seq in staged.next_seq.items())


def _rows_of(files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows of staged files again, without sequences, in order and a part at a time."""
    for _, inside in groupby(files, key=lambda file: file.segment):
        for rows in merged_by_seq([rows_in_order(file, FILE_COLUMNS.names) for file in inside]):
            yield rows.drop_columns(["seq"])
