"""Commits of other writers that derive files from already removed files, and so may resurrect messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from retention.core.spoken_commands import command
from retention.errors import ForeignRowsError
from retention.ports import Returned, VersionToken
from retention.storage.crash_points import Step
from retention.storage.sidecar import JsonCodec, Sidecar
from retention.stores.delta import log as delta_history
from retention.stores.delta.foreign_writers import TOKEN
from retention.stores.delta.internals import commit_info, file_actions
from retention.stores.delta.vector_files import named_path
from retention.stores.layout import Layout

LOOKED = 64
"""The number of other writers' entries after which the scanned version is noted."""
_LONGEST = 1_000
"""The number of entries to scan for a writer that does not state its read version."""
_Key = tuple[str, str]
"""Path and deletion vector of a file: a log adds and removes this pair."""


def refuse_returned(layout: Layout, version: int) -> None:
    """Refuse a table in which another writer may have resurrected removed messages.

    deltalake overlooks removals without a data change (as in quiet streams): it commits a concurrent operation
    (compact, update, delete, merge, overwrite) as if nothing had been removed.

    Raises:
        ForeignRowsError: names the commit, a file that it added, and a removed file.
    """
    commits = find_returned(layout, version)
    if commits:
        first, repair = commits[0], command("repair returned", layout.stream, options="--yes")
        raise ForeignRowsError(
            f"stream {layout.stream}: version {first.version}, by {first.program}, made {first.made[0]} of "
            f"{first.removed[0]}, which had been removed before, so that removed messages may be back; nothing was "
            f"changed; {repair} removes them, and names them without --yes; keep other programs from compacting, "
            "updating or deleting in this table"
        )


def find_returned(layout: Layout, version: int) -> list[Returned]:
    """The commits of other writers since our own last commit that resurrected files, oldest first.

    Each of our commits follows a scan of the versions before it, so older entries need no scan. A commit counts while
    the table has a file that it added, or a rewrite of such a file; a RESTORE to the version before it resolves it.
    """
    commits, number = [], version
    looked = _remembered(layout)
    while number > looked and (entry := delta_history.read_entry(layout, number)) is not None:
        with delta_history.damage_named(layout, number):
            if TOKEN in commit_info(entry):
                break
            returned = _returned(layout, number, entry)
        remaining = returned and _remaining(layout, returned, version)
        if remaining:
            commits.append(remaining)
        number -= 1
    if not commits and version - number > LOOKED:
        _remember(layout, version)
    return commits[::-1]


def _returned(layout: Layout, version: int, entry: bytes) -> Returned | None:
    """The files that a commit resurrected; None if it removed only live files, or added none."""
    if b'"remove"' not in entry or b'"add"' not in entry:
        return None
    removed = {_key(fields): fields for kind, fields in file_actions(entry) if kind == "remove"}
    made = tuple(named_path(fields) for kind, fields in file_actions(entry) if kind == "add")
    info = commit_info(entry)
    left = _left_before(layout, version, info.get("readVersion"))
    gone = [path for path, vector in removed if (path, vector) in left]
    if not gone or not made:
        return None
    program = str(info.get("engineInfo") or "a program that does not say its name")
    there = tuple(path for path, vector in removed if (path, vector) not in left)
    return Returned(version, program, tuple(gone), there, made)


def _remaining(layout: Layout, commit: Returned, version: int) -> Returned | None:
    """A commit with those of its files that a later version still has; None if none of its rows remain.

    If files were rewritten since, all files of the commit remain listed: a repair cannot distinguish their rows.
    """
    entry = delta_history.read_entry(layout, commit.version) or b""
    made = {_key(fields) for kind, fields in file_actions(entry) if kind == "add"}
    ever, live = set(made), set(made)
    for later in delta_history.read_entries(layout, range(commit.version + 1, version + 1)):
        removed, added = _changed(later or b"")
        is_rewrite = removed & live and not _is_restore(later or b"")
        of_it = added if is_rewrite else added & ever
        live, ever = (live - removed) | of_it, ever | of_it
    if live and live <= made:
        return replace(commit, made=tuple(path for path, _ in sorted(live)))
    return commit if live else None


def _changed(entry: bytes) -> tuple[set[_Key], set[_Key]]:
    """The files that an entry removes, and those that it adds."""
    actions = [(kind, _key(fields)) for kind, fields in file_actions(entry)]
    removed, added = (
        {key for kind, key in actions if kind == which} for which in ("remove", "add")
    )
    return removed, added


def _is_restore(entry: bytes) -> bool:
    """Whether an entry restores files of an earlier version, and creates none."""
    return commit_info(entry).get("operation") == "RESTORE"


def _left_before(layout: Layout, version: int, read: object) -> set[_Key]:
    """Files removed after a commit's read version and before the commit, and not added again in between."""
    first = read + 1 if isinstance(read, int) else max(version - _LONGEST, 0)
    left: set[_Key] = set()
    for entry in delta_history.read_entries(layout, range(first, version)):
        actions = list(file_actions(entry or b""))
        left |= {_key(fields) for kind, fields in actions if kind == "remove"}
        left -= {_key(fields) for kind, fields in actions if kind == "add"}
    return left


def _key(fields: Mapping[str, Any]) -> _Key:
    vector = fields.get("deletionVector") or {}
    names = ("storageType", "pathOrInlineDv", "offset")
    return named_path(fields), "/".join(str(vector.get(name, "")) for name in names)


def _remembered(layout: Layout) -> int:
    """The version up to which a scan found nothing; -1 if there is none, or the table no longer has it."""
    token = _sidecar(layout).load()
    return (
        -1
        if token is None or delta_history.version_token_of(layout, token.version) != token
        else token.version
    )


def _remember(layout: Layout, version: int) -> None:
    token = delta_history.version_token_of(layout, version)
    if token is not None:
        _sidecar(layout).save(token)


def _sidecar(layout: Layout) -> Sidecar[VersionToken]:
    """The sidecar with the token of the last scanned version."""
    codec = JsonCodec(asdict, lambda _, fields: VersionToken(**fields))
    return Sidecar(layout.engine_path("looked-through.json"), codec, Step.LOOKED_THROUGH)
