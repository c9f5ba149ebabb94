"""Appending to a stream: under its lease find where it stands, stage messages behind that, and commit them once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol

import pyarrow as pa

from retention.config import StreamConfig
from retention.context.context import OpenedStream
from retention.context.stream_tail import Position, locate
from retention.context.topic import refuse_topic
from retention.core.inventory import DataFile
from retention.core.table_updates import set_batches, set_next_seqs, set_open_bases
from retention.datafile import parquet
from retention.datafile.row_groups import merged, rows_in_order
from retention.datafile.segment_writer import PARTITION, Removal, Staged, Staging
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
from retention.ports import Snapshot, Swap
from retention.stores.lease import lease
from retention.stores.topic_settings import keep_settings
from schemas.files import LOGGED_FILES
from schemas.messages import FILE_COLUMNS

ATTEMPTS = 20
LEASE_WAIT_S = 60.0


def refuse_topic_of(config: StreamConfig) -> None:
    """Refuse to put messages of a stream into a topic.

    Raises:
        UsageError: it is one.
    """
    refuse_topic(
        config,
        "which takes nothing from streams and their backups",
        "publish or append to it, import the logs of an Iggy server with `retention import iggy-log DIR --topic "
        f"{config.name}`, or name a stream",
    )


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
    partitions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Of a topic: partition → first and last offset; `first_seq` and `last_seq` are the lowest and highest of them."""


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
    """Commit what `stage` writes to a stream, under the append lease; after a lost race it is asked again.

    Raises:
        UsageError: it is a topic.
        BusyError: the append lease is held, or rivals kept committing first.
        CommitUnknownError: the storage failed while committing; the staged files stay.
    """
    refuse_topic_of(opened.config)
    return append_drafts(opened, lambda: _StreamAttempt(locate(opened), stage), identity)


class Attempt(Protocol):
    """One try to append, from where the table stands."""

    @property
    def snapshot(self) -> Snapshot:
        """What its commit rests on."""
        ...

    def nothing(self) -> Appended:
        """What is said if nothing is written."""
        ...

    def draft(self, staging: Staging) -> Draft:
        """Stage what is to be committed."""
        ...


@dataclass(frozen=True)
class Draft:
    """Staged files, and what their commit says beside them."""

    stats: Sequence[dict[str, Any]]
    """Rows of `FILE_STATS` as read back."""
    next_seq: Mapping[int, int]
    """Partition → the next sequence to assign."""
    open_base: Mapping[int, int]
    told: Appended
    """What is said of it once it is committed."""
    is_new: bool
    """Whether there is something to commit without a batch's number, too."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """What is counted beside the numbers of writers."""
    removal: Removal | None = None


def append_drafts(
    opened: OpenedStream, begin: Callable[[], Attempt], identity: BatchIdentity | None
) -> Appended:
    """Commit what attempts draft, under the append lease; after a lost race another one begins.

    Args:
        opened: the stream or topic; its table is created if it does not exist.
        begin: looks where the table stands.
        identity: makes the append exactly once.

    Raises:
        BusyError: the append lease is held, or rivals kept committing first.
        CommitUnknownError: the storage failed while committing; the staged files stay.
    """
    store = opened.store
    with lease(opened.root, "append", opened.clock, wait_s=LEASE_WAIT_S), ExitStack() as refused:
        store.create()
        keep_settings(opened.root, opened.config)
        for _ in range(ATTEMPTS):
            attempt = begin()
            if is_repeat(opened.name, attempt.snapshot, identity):
                return replace(attempt.nothing(), duplicate=True)
            staging = Staging(store, opened.config.most_files)
            draft = _drafted(opened.name, attempt, staging)
            if identity is None and not draft.is_new:
                return attempt.nothing()
            try:
                version = _commit(opened, draft, identity, attempt.snapshot)
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
            return replace(draft.told, version=version)
    raise BusyError(
        f"{opened.name}: other writers committed first {ATTEMPTS} times in a row; nothing was appended; try again, "
        "or pause the other writers"
    )


@dataclass(frozen=True)
class _StreamAttempt:
    """One try to append to a stream."""

    position: Position
    stage: Stage

    @property
    def snapshot(self) -> Snapshot:
        return self.position.snapshot

    def nothing(self) -> Appended:
        first_seq = self.position.next_seq
        return Appended(first_seq, first_seq - 1, 0, 0, self.snapshot.version)

    def draft(self, staging: Staging) -> Draft:
        staged = self.stage(self.position, staging)
        return Draft(
            stats=staged.stats,
            next_seq={PARTITION: staged.next_seq},
            open_base={PARTITION: staged.active.base} if staged.active else {},
            told=_appended(self.position, staged),
            is_new=staged.next_seq != self.position.next_seq,
            batches=staged.batches,
            removal=staged.removal,
        )


def _drafted(stream: str, attempt: Attempt, staging: Staging) -> Draft:
    try:
        return attempt.draft(staging)
    except ImpossibleNumbersError as error:
        staging.discard()
        raise RefusedError(
            f"{stream}: the messages would get sequences beyond 2^62, where sequences end; nothing was appended; "
            "go on in a new stream"
        ) from error
    except BaseException:
        staging.discard()
        raise


def _commit(
    opened: OpenedStream, draft: Draft, identity: BatchIdentity | None, snapshot: Snapshot
) -> int:
    swap = Swap(
        remove=LOGGED_FILES.empty_table(),
        add=parquet.stats_table(draft.stats),
        metadata={"run": f"append-{uuid.uuid4().hex}", "messages": draft.told.messages},
        updates=[
            *set_next_seqs(draft.next_seq),
            *set_open_bases(draft.open_base),
            *set_batches({**draft.batches, **(identity.batches if identity else {})}),
        ],
    )
    if draft.removal is None:
        return opened.store.commit(swap, snapshot)
    return commit_removal(opened, swap, draft.removal, snapshot)


def _rows_of(files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows of staged files again, without sequences, in order and a part at a time."""
    for _, inside in groupby(files, key=lambda file: file.segment):
        for rows in merged([rows_in_order(file, FILE_COLUMNS.names) for file in inside]):
            yield rows.drop_columns(["seq"])


def _appended(position: Position, staged: Staged) -> Appended:
    """What is said of staged messages; the version is that before them."""
    first_seq = staged.stats[0]["min_seq"] if staged.stats else position.next_seq
    last_seq = max((row["max_seq"] for row in staged.stats), default=first_seq - 1)
    removed = staged.removal.messages if staged.removal else 0
    version = position.snapshot.version
    return Appended(first_seq, last_seq, staged.messages, staged.bytes, version, removed=removed)
