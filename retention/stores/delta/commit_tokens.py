"""Tokens of our commits on a local disk; they reveal log entries that another program overwrote.

Spark's log store checks that a version does not exist and then renames its entry into place (delta-storage,
`HDFSLogStore`). It replaces an entry that another process wrote in between, so that process's files leave the table
without a removal. Each of our commits therefore gives its entry a second name, `_retention/commits/<version>.json`;
this hard link keeps the committed entry. On an object store, entries are conditional puts, and no token is kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from retention.core.spoken_commands import command
from retention.errors import CommitUnknownError, LostCommitError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors, storage_error
from retention.stores.delta import log as delta_history
from retention.stores.delta.foreign_writers import CONDITIONAL, TABLE, TOKEN
from retention.stores.delta.internals import commit_info
from retention.stores.layout import Layout

KEPT = 32
"""The number of tokens to keep; each opening of the table compares them with the log."""
WINDOW_S = 0.1
"""The longest time, seconds, between Spark's check and its rename (normally microseconds) unless Spark is paused."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LostEntry:
    """One of our commits that another program's entry replaced."""

    version: int
    entry: bytes
    """The entry as it was committed."""
    program: str
    """The program that wrote the replacement, and the operation that its entry states."""

    token: str
    """The token of the commit, which no other entry has; empty if the entry is damaged."""


def keep_token(layout: Layout, version: int, token: str) -> bool:
    """Store the token of a new commit; False if another program already overwrote its entry.

    An entry that is gone was not overwritten if a checkpoint has it: an erasure deletes the log before that.

    Neither the link nor Spark's rename is fsynced: journaling file systems make both durable in order of execution.

    Raises:
        CommitUnknownError: the entry is gone, and no checkpoint has it.
    """
    entry, place = delta_history.place_of(layout, version), _place(layout, version)
    if os.path.lexists(place):
        # The log was restored from a copy; the tokens belong to entries that it no longer has.
        forget(layout, _tokens(layout))
    if not _link(entry, place):
        if files.length(entry) is None:
            _refuse_unknown(layout, version)
            return True
        _log.warning(
            "stream %s: no token of version %d could be kept in %s, so that nobody would notice if another program "
            "overwrote it",
            layout.stream,
            version,
            place,
        )
        return True
    if token.encode() not in (files.read_unchanging(place) or b""):
        files.delete([place])
        return False
    reached(Step.COMMIT_LINKED)
    spent = sorted(_tokens(layout))[:-KEPT]
    if spent:
        forget(layout, spent)
    return True


def stands(layout: Layout, version: int) -> bool:
    """Whether the entry of a version still matches its token; True without a token."""
    return version not in _replaced(layout)


def all_stand(layout: Layout) -> bool:
    """Whether no entry differs from its token."""
    return next(_replaced(layout), None) is None


def lost_entries(layout: Layout) -> list[LostEntry]:
    """Our lost commits, oldest first.

    A commit is not lost if log cleanup removed its entry or if a later entry commits it again. Nor is it lost if the
    log was restored from a copy: then the log ends before the newest token, or the entry's replacement cannot have
    overwritten it (deltalake and this engine create an entry only if none exists). Nor is it lost if its table no
    longer exists, because another program deleted it and created another in its place.

    Raises:
        RefusedError, DamagedError, StorageError: as `open_table`.
    """
    versions = list(_replaced(layout))
    if not versions or max(_tokens(layout)) > delta_history.versions(layout)[0][-1]:
        return []
    overwritten = (_lost(layout, version) for version in versions)
    lost = [each for each in overwritten if each is not None]
    if not lost:
        return []
    from retention.stores.delta.table import open_table

    table = str(open_table(layout).metadata["id"])
    return [each for each in lost if _info(each.entry).get(TABLE, table) == table]


def refuse_lost(layout: Layout) -> None:
    """Refuse a table that lost one of our commits: no version has its added files and counters.

    Raises:
        LostCommitError: names the version, the run of the commit, and the program that overwrote it.
    """
    lost = lost_entries(layout)
    if lost:
        first, repair = lost[0], command("repair lost-commit", layout.stream, options="--yes")
        raise LostCommitError(
            f"stream {layout.stream}: version {first.version} of the table was a commit of ours ({_run_of(first)}), "
            f"and {first.program} overwrote it, as Spark can on a local disk; nothing was changed; {repair} commits it "
            "again, and says what it held without --yes (spark_writes: true keeps it from happening while Spark writes "
            "to the table)"
        )


def _run_of(lost: LostEntry) -> object:
    return delta_history.run_of(lost.entry) if lost.token else "its token is damaged"


def forget_before(layout: Layout, version: int) -> None:
    """Delete the tokens of the versions before one: each is a second name of an entry."""
    forget(layout, [known for known in _tokens(layout) if known < version])


def forget(layout: Layout, versions: Collection[int]) -> None:
    """Delete tokens that are no longer needed."""
    files.delete(_place(layout, version) for version in versions)
    reached(Step.COMMIT_LINKS_DELETED)


def _lost(layout: Layout, version: int) -> LostEntry | None:
    info = _info(delta_history.read_entry(layout, version) or b"")
    program = str(info.get("engineInfo") or "a program that does not say its name")
    if not info or TOKEN in info or program.startswith(CONDITIONAL):
        # Opening the table reports a damaged entry in the log.
        return None
    entry = files.read_unchanging(_place(layout, version)) or b""
    token = str(_info(entry).get(TOKEN, ""))
    if token and delta_history.find_token(layout, token, version) is not None:
        return None
    act = f"{program} ({info.get('operation', 'a commit')})"
    return LostEntry(version, entry, act, token)


def _info(entry: bytes) -> dict[str, object]:
    """An entry's commit info; empty if it has none or is damaged."""
    try:
        return commit_info(entry)
    except ValueError:
        return {}


def _replaced(layout: Layout) -> Iterator[int]:
    """The versions with an entry that differs from their token, ascending."""
    for version, inode in sorted(_tokens(layout).items()):
        place = delta_history.place_of(layout, version)
        if _inode(place) not in {None, inode} and not _is_equal(_place(layout, version), place):
            yield version


def _inode(place: str) -> int | None:
    """The inode of a file; None if it is gone."""
    try:
        return os.stat(place).st_ino  # noqa: PTH116  (32 of them at each commit)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(place, error) from error


def _is_equal(token: str, entry: str) -> bool:
    """Whether an entry has the content of a token; a copied warehouse has no hard links."""
    return files.read_unchanging(token) == files.read_unchanging(entry)


def _tokens(layout: Layout) -> dict[int, int]:
    """Version → inode of each token; none on an object store."""
    if files.is_remote(layout.root):
        return {}
    inodes = {}
    directory = layout.engine_path("commits")
    with (
        suppress(FileNotFoundError),
        as_storage_errors(directory, FileNotFoundError),
        os.scandir(directory) as entries,
    ):
        for entry in entries:
            version, _, kind = entry.name.partition(".")
            if kind == "json":
                inodes[int(version)] = entry.inode()
    return inodes


def _refuse_unknown(layout: Layout, version: int) -> None:
    if max(delta_history.versions(layout)[1], default=-1) < version:
        raise CommitUnknownError(
            f"stream {layout.stream}: the entry of version {version} was deleted as soon as it was written, and no "
            "checkpoint has it; look at the table's history, delete no file"
        )


def _link(entry: str, place: str) -> bool:
    """Hard-link an entry, or copy it if the file system has no links; False if both fail."""
    try:
        files.link(entry, place)
    except OSError:
        try:
            content = files.read_unchanging(entry)
            if content is None:
                return False
            files.replace(place, content)
        except OSError:
            return False
    return True


def _place(layout: Layout, version: int) -> str:
    return layout.engine_path("commits", f"{version:020d}.json")
