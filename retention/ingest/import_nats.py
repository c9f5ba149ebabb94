"""Importing a NATS backup into an empty stream: every message unchanged, all or none, exactly once."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from retention.consumers.expiry import mark_used
from retention.consumers.state import from_json
from retention.context.context import OpenedStream
from retention.context.position import Position
from retention.core import message_rows
from retention.core.display import Displayed
from retention.core.message_rows import Storage
from retention.core.subjects import is_valid_name
from retention.datafile.segment_writer import PARTITION, stage_rows
from retention.dialects.jetstream import JetStream
from retention.errors import DamagedError, RefusedError
from retention.formats.nats.account import (
    AccountDifference,
    BackupTotals,
    differences,
    refuse_differences,
    refuse_other_storage,
)
from retention.formats.nats.backup import Backup, read_backup
from retention.ingest.append import appending, refuse_topic_of
from retention.ingest.idempotency import BatchIdentity
from retention.layout.segment_roll import Tail
from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable

_WRITER = "nats-backup/"


@dataclass(frozen=True)
class Imported(Displayed):
    """The content of a backup, and whether this import wrote it."""

    stream: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    already: bool
    """Whether the same file was imported before, and nothing was written."""
    differences: tuple[AccountDifference, ...] = ()
    """Numbers that differ from the server's account because messages were removed while it wrote the archive."""


def import_nats_backup(opened: OpenedStream, path: str | Path, *, strict: bool = False) -> Imported:
    """Import a v2 backup: sequences, times, headers and payloads unchanged, despite the stream's limits.

    A server writes its account before the archive, and messages may be removed meanwhile. As RESTORE does, the import
    takes the archive's content; the result lists the differences.

    The file's SHA-256, kept as a writer's batch in the commit that adds the messages, makes a second import of the same
    file a no-op. The last sequence is the backup's, even if the messages before it were removed.

    Args:
        opened: the stream; it must never have been written to. It is created if it does not exist.
        path: the archive, or the directory that `nats stream backup` made.
        strict: refuse an archive that differs from the account.

    Raises:
        DamagedError: it is not an archive, is truncated, or RESTORE refuses it; its bytes are those of another storage;
            or, if `strict`, it differs from its account. Nothing was imported.
        RefusedError: the stream contains, or contained, other messages.
        BusyError: the append lease is held, or other writers kept committing first.
    """
    refuse_topic_of(opened.config)
    with as_storage_errors(str(path)):
        backup = read_backup(path)
        origin = _WRITER + _digest(backup.path)
    consumers = _consumers(backup, origin, opened.clock())
    storage, dialect = opened.config.storage, JetStream.of(opened.config)
    reading = _Reading(backup, storage, strict)
    with appending(opened, BatchIdentity(origin, 1)) as append:
        for attempt in append.attempts():
            _check_empty(opened, attempt.position, backup)
            _keep_consumers(opened, consumers)
            ends = dialect.ends(Tail(attempt.position.next_seq))
            rows = (message_rows.complete_rows(batch, storage) for batch in reading.batches())
            staged = stage_rows(attempt.staging, rows, ends)
            append.commit(replace(staged, next_seq={PARTITION: reading.last_seq + 1}))
    if append.done.duplicate:
        deque(reading.batches(), maxlen=0)
    return reading.imported(opened.name, already=append.done.duplicate)


class _Reading:
    """A backup while its messages are read and counted, then compared with the server's account."""

    def __init__(self, backup: Backup, storage: Storage, strict: bool) -> None:  # noqa: FBT001
        self._backup, self._storage, self._strict = backup, storage, strict
        self._totals = BackupTotals()
        self._differences: tuple[AccountDifference, ...] = ()

    @property
    def last_seq(self) -> int:
        """The stream's last assigned sequence, once all is read: the account's, or a later message's."""
        return max(self._backup.state["last_seq"], self._totals.last_seq)

    def batches(self) -> Iterator[pa.Table]:
        """Read the messages from the beginning, shape `RAW_ROWS`.

        Raises:
            DamagedError: see `import_nats_backup`.
        """
        path, totals = self._backup.path, BackupTotals()
        for batch in self._backup.batches():
            totals.add(batch)
            yield batch
        differing = differences(self._backup.state, totals, self._storage)
        if self._strict:
            refuse_differences(path, differing)
        refuse_other_storage(path, differing, totals, self._storage)
        self._totals, self._differences = totals, differing

    def imported(self, stream: str, *, already: bool) -> Imported:
        """The content of the backup, once all is read."""
        totals, last = self._totals, self.last_seq
        return Imported(
            stream,
            totals.messages,
            totals.bytes[self._storage],
            totals.first_seq or last + 1,
            last,
            already,
            self._differences,
        )


def _check_empty(opened: OpenedStream, position: Position, backup: Backup) -> None:
    if position.inventory.files.num_rows or position.next_seq > opened.dialect.first_seq:
        raise RefusedError(
            f"{opened.name}: the stream was written to before, up to sequence {position.next_seq - 1}, so "
            f"{backup.path} cannot keep its sequences; nothing was imported; import into a new stream (--stream)"
        )


def _keep_consumers(opened: OpenedStream, consumers: Sequence[ConsumerRecord]) -> None:
    """Keep consumers before the commit: without it they have no effect, and after it no release can miss one."""
    # Not before a new table replaces a dropped one, whose consumers `undo` would miss.
    opened.store.create()
    table = ConsumerTable(opened.root, opened.table.lifetime().generation)
    for record in consumers:
        table.update(record.consumer, partial(_in_place_of, record))
    if consumers:
        reached(Step.CONSUMERS_KEPT)


def _in_place_of(record: ConsumerRecord, stored: ConsumerRecord | None) -> ConsumerRecord:
    if stored is None or stored.origin == record.origin:
        return stored or record
    return replace(record, revision=stored.revision + 1)


def _consumers(backup: Backup, origin: str, now_ns: int) -> list[ConsumerRecord]:
    records: dict[str, ConsumerRecord] = {}
    for entry, fields in backup.consumers.items():
        try:
            config = dict(fields["config"])
            state = mark_used(config, from_json(fields["state"]), now_ns)
            name = _name_of(entry, config, origin)
        except (KeyError, TypeError, ValueError, DamagedError) as error:
            raise DamagedError(
                f"{backup.path}: consumer {entry} cannot be read ({error}); nothing was imported; make the backup again"
            ) from error
        record = ConsumerRecord(name, config, state, revision=1, origin=origin)
        if name not in records or records[name].state.delivered < state.delivered:
            records[name] = record
    return list(records.values())


def _name_of(entry: str, config: Mapping[str, object], origin: str) -> str:
    """A consumer's name as RESTORE assigns it: a durable's name, otherwise its entry's, its own, or a generated one.

    The server draws eight characters at random; here they are the archive's, so that its import is repeatable.

    Raises:
        ValueError: RESTORE refuses the name.
    """
    durable, plain = (str(config.get(key) or "") for key in ("durable_name", "name"))
    held = durable or entry
    if held and plain and held != plain:
        raise ValueError(f"it is kept as {held}, and its name {plain} has to be equal")
    name = held or plain or hashlib.sha256(origin.encode()).hexdigest()[:8]
    if not is_valid_name(name):
        raise ValueError(f"{name!r} cannot be a consumer's name")
    return name


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
