"""Importing a NATS backup into an empty stream: every message as it was, all of them or none, once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention import files, rows
from retention.errors import DamagedError, RefusedError
from retention.failing import telling
from retention.formats.nats_backup import Backup, read_backup
from retention.opened import OpenedStream
from retention.passes.position import FIRST_SEQ, Position
from retention.segments import Counters
from retention.staging import Staged, Staging, stage_rows
from retention.steps import Step, reached
from retention.writing.append import BatchIdentity, append

CONSUMERS = "consumers/imported.json"
"""Below the stream's root: the consumers of the backup, with their state."""
_WRITER = "nats-backup/"


@dataclass(frozen=True)
class Imported:
    """What a backup holds, and whether this import wrote it."""

    stream: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    already: bool
    """The same file was imported before, and nothing was written."""


def import_nats_backup(opened: OpenedStream, path: str | Path) -> Imported:
    """Import a v2 backup: sequences, times, headers and payloads unchanged, whatever the stream's limits.

    What makes a second import of the same file a no-op is its SHA-256, kept as a writer's batch in the very commit
    that adds the messages. The last sequence is the backup's, also where the messages before it are gone.

    Args:
        opened: the stream; nothing may ever have been written to it. It is created if it does not exist.
        path: the archive, or the directory that `nats stream backup` made.

    Raises:
        DamagedError: it is no archive, is cut off, or disagrees with its `state.json`; nothing was imported.
        RefusedError: the stream holds, or held, something else.
        BusyError: the append lease is held, or rivals kept committing first.
    """
    with telling(str(path)):
        backup = read_backup(path)
        digest = _digest(backup.path)

    def stage(position: Position, staging: Staging) -> Staged:
        _check_empty(opened, position, backup)
        _keep_consumers(opened, backup, digest)
        staged = stage_rows(staging, _rows(opened, backup), None, position.rule, position.next_seq)
        return replace(staged, next_seq=backup.state["last_seq"] + 1)

    appended = append(opened, stage, BatchIdentity(_WRITER + digest, 1))
    state = backup.state
    return Imported(
        opened.name,
        state["messages"],
        state["bytes"],
        state["first_seq"] if state["messages"] else state["last_seq"] + 1,
        state["last_seq"],
        appended.duplicate,
    )


def kept_consumers(opened: OpenedStream, counters: Counters) -> Mapping[str, Mapping[str, Any]]:
    """The consumers that an import kept: name → `config` and `state`; none if that import was never committed.

    Raises:
        DamagedError: what was kept cannot be read.
    """
    location = files.join(opened.root, CONSUMERS)
    content = files.read_bytes(location)
    if content is None:
        return {}
    try:
        kept = json.loads(content)
        consumers: dict[str, dict[str, Any]] = kept["consumers"]
        imported = f"{_WRITER}{kept['sha256']}" in counters.batches
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(
            f"{location}: cannot be read as the consumers that an import kept ({error!r}); nothing was written; "
            "restore that file from a copy, or remove it to go on without consumers"
        ) from error
    return consumers if imported else {}


def _rows(opened: OpenedStream, backup: Backup) -> Iterator[pa.Table]:
    storage = opened.config.storage
    for batch in backup.batches(storage=storage):
        yield rows.complete(batch, storage)


def _check_empty(opened: OpenedStream, position: Position, backup: Backup) -> None:
    first_seq = opened.config.first_seq or FIRST_SEQ
    if position.inventory.files.num_rows or position.next_seq > first_seq:
        raise RefusedError(
            f"{opened.name}: the stream was written to before, up to sequence {position.next_seq - 1}, so that "
            f"{backup.path} cannot keep its sequences; nothing was imported; import into a new stream (--stream)"
        )


def _keep_consumers(opened: OpenedStream, backup: Backup, digest: str) -> None:
    """Before the commit: without it they belong to nothing, and a repeated import writes them again."""
    if not backup.consumers:
        return
    kept = {"backup": backup.path.name, "sha256": digest, "consumers": backup.consumers}
    content = json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False)
    files.replace(files.join(opened.root, CONSUMERS), content.encode())
    reached(Step.CONSUMERS_KEPT)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
