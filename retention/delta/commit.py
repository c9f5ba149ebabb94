"""Commits to a Delta table of any writer: an entry put if absent, after a check of every entry in between."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from retention.delta import entries, log_files, snapshot
from retention.delta.entries import Action
from retention.delta.entry_put import put_entry
from retention.delta.features import refuse_unsafe
from retention.delta.file_actions import live_vectors
from retention.delta.snapshot import IN_COMMIT_TIMES, DeltaSnapshot
from retention.errors import BusyError, ConflictError, StalePlanError

Build = Callable[[int, int, DeltaSnapshot], Iterable[Action]]
"""The actions of a commit, given its version, the time in milliseconds since the epoch, and the table before it."""

TRIES = 20
_LONGEST_PAUSE_S = 0.2


@dataclass(frozen=True)
class Operation:
    """The description of a commit in the table's history."""

    name: str
    """The operation as Delta names it: DELETE, RESTORE, …"""
    engine: str
    """The program that commits, and its version."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    user_metadata: str | None = None
    application: str | None = None
    """The application id that the commit's `txn` has; another entry with it in between is a conflict."""


def commit(
    before: DeltaSnapshot, build: Build, operation: Operation, clock: Callable[[], int]
) -> DeltaSnapshot:
    """Commit actions after every entry that others have written meanwhile, and return the table after it.

    Appends, and removals of other files, pass. Every file that the actions remove must be live at that instant,
    with the vector that the removal names.

    Args:
        before: the table that the actions rest on.
        build: makes the actions; called again for each try, so that ids and times are assigned anew.
        operation: its description.
        clock: the wall clock, nanoseconds since the epoch.

    Raises:
        RefusedError: removals from this table are refused.
        StalePlanError: a removed file is gone or has another vector, an added one is live, others changed the table's
            metadata or protocol, or another table is in its place.
        ConflictError: another entry has a transaction of the same application.
        BusyError: others committed first in every try.
        LostCommitError: another program overwrote the entry.
        CommitUnknownError: the storage did not say whether it has the entry.
        DamagedError, StorageError: the log cannot be read, or the storage failed and has no entry.
    """
    token, current = str(uuid.uuid4()), before
    for pause_s in (0.0, *[_LONGEST_PAUSE_S] * (TRIES - 1)):
        time.sleep(random.uniform(0, pause_s))  # noqa: S311
        current = _caught_up(current, operation)
        now_ms = clock() // 10**6
        actions = [*build(current.version + 1, now_ms, current)]
        _refuse_stale(current, actions)
        content = entries.encode([_commit_info(current, operation, token, now_ms), *actions])
        _refuse_replaced(current)
        if put_entry(log_files.entry_place(current.root, current.version + 1), content, token):
            return snapshot.stamped(snapshot.after(current, [content]))
    raise BusyError(
        f"{before.root}: other programs committed first {TRIES} times; nothing was changed; try again"
    )


def _caught_up(current: DeltaSnapshot, operation: Operation) -> DeltaSnapshot:
    """The table with the entries of others, unless one is a conflict for any removal."""
    _refuse_replaced(current)
    newer = snapshot.newer_entries(current)
    for version, content in enumerate(newer, current.version + 1):
        place = log_files.entry_place(current.root, version)
        for action in entries.split(content, place).others:
            _refuse_conflict(current.root, version, action, operation)
    return snapshot.stamped(snapshot.after(current, newer)) if newer else current


def _refuse_conflict(root: str, version: int, action: Action, operation: Operation) -> None:
    if action.get("metaData") or action.get("protocol"):
        kind = "metadata" if action.get("metaData") else "protocol"
        raise StalePlanError(
            f"{root}: version {version} changed the table's {kind} after it was read; nothing was changed; plan again"
        )
    transaction = action.get("txn") or {}
    if operation.application is not None and transaction.get("appId") == operation.application:
        raise ConflictError(
            f"{root}: version {version} has a transaction of {operation.application} from another process; nothing was "
            "changed; read the table again and try again"
        )


def _refuse_stale(current: DeltaSnapshot, actions: Sequence[Action]) -> None:
    """Refuse to remove a file that is not live as the removal names it, and to add one with a path that stays live."""
    removed = [action["remove"] for action in actions if action.get("remove")]
    added = [action["add"] for action in actions if action.get("add")]
    if removed:
        refuse_unsafe(current)
    paths = {unquote(fields["path"]) for fields in (*removed, *added)}
    vectors = live_vectors(current.files, paths)
    for fields in removed:
        live = vectors[unquote(fields["path"])]
        vector = entries.vector_id(fields.get("deletionVector"))
        if vector not in live:
            reason = "has another deletion vector" if live else "is no longer in the table"
            raise _stale(current, fields["path"], reason)
        live.remove(vector)
    for fields in added:
        if vectors[unquote(fields["path"])]:
            raise _stale(current, fields["path"], "is in the table already")


def _stale(current: DeltaSnapshot, path: str, reason: str) -> StalePlanError:
    return StalePlanError(
        f"{current.root}: the file {path} {reason} at version {current.version}; nothing was changed; plan again"
    )


def _commit_info(current: DeltaSnapshot, operation: Operation, token: str, now_ms: int) -> Action:
    """The first action of an entry; a table with in-commit times is ruined for writers by an entry without one."""
    info: dict[str, Any] = {}
    if current.is_set(IN_COMMIT_TIMES):
        info["inCommitTimestamp"] = now_ms = max(now_ms, (current.in_commit_ms or 0) + 1)
    info |= {
        "timestamp": now_ms,
        "operation": operation.name,
        "operationParameters": dict(operation.parameters),
        "readVersion": current.version,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {name: str(value) for name, value in operation.metrics.items()},
        "engineInfo": operation.engine,
        "txnId": token,
    }
    if operation.user_metadata is not None:
        info["userMetadata"] = operation.user_metadata
    return {"commitInfo": info}


def _refuse_replaced(current: DeltaSnapshot) -> None:
    """Refuse to go on after an entry that is another one by now, or that the log's cleanup has deleted."""
    if not snapshot.is_current(current):
        raise StalePlanError(
            f"{current.root}: the entry of version {current.version} is no longer the one that was read, as another "
            "table was made in its place or its log was cleaned up; nothing was changed; plan again"
        )
