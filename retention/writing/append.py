"""Appending to a stream: under its lease find where it stands, stage messages behind that, and commit them once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from retention import parquet_files
from retention.config import StreamConfig
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ConflictError,
    RetentionError,
    StalePlanError,
    UsageError,
)
from retention.opened import OpenedStream
from retention.passes.position import Position, locate
from retention.passes.topics import refuse_topic
from retention.picking import merged, rows_in_order
from retention.ports import Snapshot, Swap
from retention.segments import DataFile
from retention.staging import PARTITION, Staged, Staging
from retention.stores.lease import lease
from retention.writing.recorded import commit_removal
from schemas.files import LOGGED_FILES
from schemas.messages import FILE_COLUMNS

ATTEMPTS = 20
LEASE_WAIT_S = 60.0


def refuse_topic_of(config: StreamConfig) -> None:
    """Refuse to write single messages to a topic.

    Raises:
        UsageError: it is one.
    """
    refuse_topic(
        config,
        "which takes nothing but the logs of an Iggy server",
        f"import them with `retention import iggy-log DIR --topic {config.name}`, or name a stream",
    )


@dataclass(frozen=True)
class BatchIdentity:
    """Makes a write exactly once: a batch whose number is not above the writer's last is not written again."""

    writer: str
    batch: int
    also: str | None = None
    """A second name under which the commit keeps the same number."""

    @property
    def batches(self) -> dict[str, int]:
        """What the commit keeps: names and numbers."""
        return {name: self.batch for name in (self.writer, self.also) if name is not None}


def batch_identity(writer: str | None, batch: int | None) -> BatchIdentity | None:
    """What makes a write exactly once; None if neither is given.

    Raises:
        UsageError: one is given without the other.
    """
    if writer is None and batch is None:
        return None
    if writer is None or batch is None:
        raise UsageError(
            "a writer and a batch number belong together: the writer's name, and a number that rises with each of its "
            "batches; give both or neither"
        )
    return BatchIdentity(writer, batch)


@dataclass(frozen=True)
class Appended:
    """What an append did; without messages `last_seq` is `first_seq - 1`."""

    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    version: int
    duplicate: bool = False
    """The writer's batch was there already, and nothing was written."""
    removed: int = 0
    """Messages that were there before, and that a roll-up took."""


Stage = Callable[[Position, Staging], Staged]
"""Writes an append's files for a position; called again, with a later position, after a lost race."""


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
        BusyError: the append lease is held, or rivals kept committing first.
        VerificationError: the staged files do not hold what was written; nothing was committed.
    """
    source = batches

    def stage(position: Position, staging: Staging) -> Staged:
        nonlocal source
        staged = position.stage(staging, source)
        # Read only after a lost race: what the caller gave may be an iterator, and is spent.
        source = _rows_of(staging.named({row["path"] for row in staged.stats}))
        return staged

    return append(opened, stage, identity)


def append(opened: OpenedStream, stage: Stage, identity: BatchIdentity | None = None) -> Appended:
    """Commit what `stage` writes, under the append lease; after a lost race it is asked again.

    Raises:
        UsageError: it is a topic.
        BusyError: the append lease is held, or rivals kept committing first.
        CommitUnknownError: the storage failed while committing; the staged files stay.
    """
    refuse_topic_of(opened.config)
    store = opened.store
    with lease(opened.root, "append", opened.clock, wait_s=LEASE_WAIT_S), ExitStack() as refused:
        store.create()
        for _ in range(ATTEMPTS):
            position = locate(opened)
            if is_repeat(position.snapshot, identity):
                return _nothing(position, duplicate=True)
            staging = Staging(store, opened.config.most_files)
            staged = _staged(stage, position, staging)
            if identity is None and staged.next_seq == position.next_seq:
                return _nothing(position, duplicate=False)
            try:
                version = _commit(opened, staged, identity, position.snapshot)
            except (ConflictError, StalePlanError):
                # Kept until the next attempt has read its rows from them.
                refused.callback(staging.discard)
                continue
            except CommitUnknownError:
                raise
            except RetentionError:
                staging.discard()
                raise
            store.finish()
            return _appended(position, staged, version)
    raise BusyError(
        f"{opened.name}: other writers committed first {ATTEMPTS} times in a row; nothing was appended; try again, "
        "or pause the other writers"
    )


def is_repeat(snapshot: Snapshot, identity: BatchIdentity | None) -> bool:
    """Whether the writer has written this batch, or a later one, already."""
    if identity is None:
        return False
    last = snapshot.counters.batches.get(identity.writer)
    return last is not None and identity.batch <= last


def _staged(stage: Stage, position: Position, staging: Staging) -> Staged:
    try:
        return stage(position, staging)
    except BaseException:
        staging.discard()
        raise


def _commit(
    opened: OpenedStream, staged: Staged, identity: BatchIdentity | None, snapshot: Snapshot
) -> int:
    swap = Swap(
        remove=LOGGED_FILES.empty_table(),
        add=parquet_files.stats_table(staged.stats),
        metadata={"run": f"append-{uuid.uuid4().hex}", "messages": staged.messages},
        next_seq={PARTITION: staged.next_seq},
        open_base={PARTITION: staged.active.base} if staged.active else {},
        batches=identity.batches if identity else {},
    )
    if staged.removal is None:
        return opened.store.commit(swap, snapshot)
    return commit_removal(opened, swap, staged.removal, snapshot)


def _rows_of(files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows of staged files again, without sequences, in order and a part at a time."""
    for _, inside in groupby(files, key=lambda file: file.segment):
        for rows in merged([rows_in_order(file, FILE_COLUMNS.names) for file in inside]):
            yield rows.drop_columns(["seq"])


def _nothing(position: Position, *, duplicate: bool) -> Appended:
    first_seq = position.next_seq
    return Appended(first_seq, first_seq - 1, 0, 0, position.snapshot.version, duplicate)


def _appended(position: Position, staged: Staged, version: int) -> Appended:
    first_seq = staged.stats[0]["min_seq"] if staged.stats else position.next_seq
    last_seq = max((row["max_seq"] for row in staged.stats), default=first_seq - 1)
    removed = staged.removal.messages if staged.removal else 0
    return Appended(first_seq, last_seq, staged.messages, staged.bytes, version, removed=removed)
