"""Tokens of our commits on a local disk: an entry of the log that another program overwrites is noticed by them.

Spark's log store looks whether a version is there and then renames its entry into place (delta-storage,
`HDFSLogStore`): an entry of another process that comes in between is replaced, and its files leave the table without
a removal. Each commit of ours therefore gives its entry a second name, `_retention/commits/<version>.json`: this hard
link keeps the entry as it was committed. On an object store entries are conditional puts, and no token is kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from retention.core.spoken_commands import command
from retention.errors import LostCommitError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors
from retention.stores.delta import log as delta_history
from retention.stores.delta.foreign_writers import CONDITIONAL, TABLE, TOKEN
from retention.stores.delta.internals import commit_info
from retention.stores.delta.table import open_table
from retention.stores.layout import Layout

KEPT = 32
"""The number of tokens that are kept; each opening of the table compares them with the log."""
WINDOW_S = 0.1
"""The time between Spark's look and its rename, at most, unless its process stands still (it takes microseconds)."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LostEntry:
    """A commit of ours that another program's entry took the place of."""

    version: int
    entry: bytes
    """The entry as it was committed."""
    program: str
    """The program that wrote the entry in its place, and what it says it did."""

    token: str
    """The token of the commit, which no other entry has; empty where the entry is damaged."""


def keep_token(layout: Layout, version: int, token: str) -> bool:
    """Keep the token of a commit that was just made; False if its entry is another program's already.

    Neither this nor a rename is synced: file systems with a journal make both durable in the order in which they came.
    """
    place = _place(layout, version)
    if os.path.lexists(place):
        # The log was put back from a copy: these are tokens of what it does not have any more.
        forget(layout, _tokens(layout))
    if not _link(delta_history.place_of(layout, version), place):
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
    """Whether the entry of a version is still the one that its token was made of, if it has one."""
    return version not in _replaced(layout)


def all_stand(layout: Layout) -> bool:
    """Whether no token has another entry in the place of its own."""
    return next(_replaced(layout), None) is None


def lost_entries(layout: Layout) -> list[LostEntry]:
    """The commits of ours that are lost, oldest first.

    Not lost is a commit whose entry was cleaned away, or whose log was put back from a copy: then an entry that cannot
    have overwritten it stands in its place (deltalake's and ours are created only where none is), or the log ends
    before the newest token. Nor is one that was committed again, which a later entry says, nor one of a table that is
    there no more: another program deleted it, and made another in its place.

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
    table = str(open_table(layout).metadata().id)
    return [each for each in lost if _info(each.entry).get(TABLE, table) == table]


def refuse_lost(layout: Layout) -> None:
    """Refuse a table of which a commit of ours is lost: what it added is in no version, and its counters neither.

    Raises:
        LostCommitError: naming the version, what was committed, and the program that overwrote it.
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


def forget(layout: Layout, versions: Collection[int]) -> None:
    """Delete the tokens of commits that were lost and are settled."""
    files.delete(_place(layout, version) for version in versions)
    reached(Step.COMMIT_LINKS_DELETED)


def _lost(layout: Layout, version: int) -> LostEntry | None:
    info = _info(delta_history.read_entry(layout, version) or b"")
    program = str(info.get("engineInfo") or "a program that does not say its name")
    if not info or TOKEN in info or program.startswith(CONDITIONAL):
        # Where the entry in the log is damaged, opening the table says so.
        return None
    entry = files.read_unchanging(_place(layout, version)) or b""
    token = str(_info(entry).get(TOKEN, ""))
    if token and delta_history.find_token(layout, token, version) is not None:
        return None
    act = f"{program} ({info.get('operation', 'a commit')})"
    return LostEntry(version, entry, act, token)


def _info(entry: bytes) -> dict[str, Any]:
    """An entry's account of itself; empty if it has none, or is damaged."""
    try:
        return commit_info(entry)
    except ValueError:
        return {}


def _replaced(layout: Layout) -> Iterator[int]:
    """The versions whose entry is there and is not the one that the token was made of, ascending."""
    for version, inode in sorted(_tokens(layout).items()):
        place = delta_history.place_of(layout, version)
        with suppress(FileNotFoundError), as_storage_errors(place, FileNotFoundError):
            if os.stat(place).st_ino != inode and not _is_equal(_place(layout, version), place):  # noqa: PTH116
                yield version


def _is_equal(token: str, entry: str) -> bool:
    """Whether an entry has the content of a token: a copied warehouse has no links."""
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


def _link(entry: str, place: str) -> bool:
    """Give an entry a second name; a copy where the file system has no links; False where neither can be."""
    try:
        files.link(entry, place)
    except OSError:
        try:
            files.replace(place, files.read_unchanging(entry) or b"")
        except OSError:
            return False
    return True


def _place(layout: Layout, version: int) -> str:
    return layout.engine_path("commits", f"{version:020d}.json")
