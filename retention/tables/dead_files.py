"""The files that our own passes removed from a Delta table, and that a reclaim deletes once their grace is over.

A file is deleted only if the entry of our commit removes it, and no later entry names it: then nobody restored it, and
its tombstone is ours. All other dead files are left to the owner's VACUUM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from urllib.parse import unquote

from retention.apply.reclaim.report import Amount
from retention.core.run_names import started_ns
from retention.core.units import INT64_MAX
from retention.delta import entries
from retention.delta import snapshot as delta_log
from retention.delta.features import ABSOLUTE
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.stored_entries import stored_entry
from retention.history.kinds import TableApplied
from retention.storage import files
from retention.tables.opened import OpenedTable
from retention.tables.records import read_changes

_KEPT = "delta.deletedFileRetentionDuration"
_OWNERS_KEPT = "interval 7 days"
"""The duration of a table without the property."""
_SECONDS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


@dataclass(frozen=True)
class DeadFiles:
    """The files that our passes removed from a table, by their fate."""

    grace_ns: int
    """The time for which they are kept, nanoseconds."""
    going: Mapping[str, int]
    """Location of a file to delete → its bytes."""
    staying: Mapping[str, Amount]
    """Hindrance → files that are kept."""
    passes: Collection[str]
    """The passes of those that are kept."""


def amount_of(sizes: Mapping[str, int]) -> Amount:
    """The amount of files by their bytes."""
    return Amount(len(sizes), sum(sizes.values()))


def dead_files(table: OpenedTable) -> DeadFiles:
    """The files that our passes removed from a Delta table, by their fate.

    Raises:
        UsageError: there is no table.
        DamagedError, StorageError: the log, or the record of a pass, cannot be read.
    """
    snapshot = delta_log.read(table.location)
    grace_ns = max(table.settings.grace_ns, owners_kept_ns(snapshot))
    cutoff_ns = table.clock() - grace_ns
    decided = {unquote(path) for path in snapshot.files["path"].to_pylist()}
    going: dict[str, int] = {}
    staying: dict[str, Amount] = {}
    passes: set[str] = set()
    actions_of = cache(partial(_actions, snapshot.root))
    for run in done_passes(table):
        present = _existing(table, _removed_files(table, run) - decided)
        if not present:
            continue
        decided |= present.keys()
        hindrance = _hindrance(snapshot.version, actions_of, run, cutoff_ns, present.keys())
        if hindrance is None:
            going |= {files.join(table.location, path): size for path, size in present.items()}
        else:
            staying[hindrance] = staying.get(hindrance, Amount()) + amount_of(present)
            passes.add(run.run)
    return DeadFiles(grace_ns, going, staying, passes)


def done_passes(table: OpenedTable) -> list[TableApplied]:
    """The passes that committed, and whose version is known, newest first."""
    return [
        record
        for record in table.history.outcomes()
        if isinstance(record, TableApplied) and record.is_done and record.version_after is not None
    ]


def owners_kept_ns(snapshot: DeltaSnapshot) -> int:
    """The time for which the table's owner keeps deleted files, nanoseconds; unreadable: forever."""
    text = str(snapshot.properties.get(_KEPT, _OWNERS_KEPT)).lower()
    parts = re.findall(r"(\d+)\s+(week|day|hour|minute|second)s?\b", text)
    if not parts:
        return INT64_MAX
    return sum(int(number) * _SECONDS[unit] for number, unit in parts) * 10**9


def _actions(root: str, version: int) -> list[entries.Action] | None:
    """The actions of an entry of the log; None: it is gone."""
    entry = stored_entry(root, version)
    return None if entry is None else entry.actions()


def _removed_files(table: OpenedTable, run: TableApplied) -> set[str]:
    """Decoded paths of the files that a pass took out of the table; absolute ones may be those of another table."""
    return {
        unquote(change.before["path"])
        for change in read_changes(table, run.run)
        if change.is_whole_or_copied and re.match(ABSOLUTE, change.before["path"]) is None
    }


def _hindrance(
    newest: int,
    actions_of: Callable[[int], list[entries.Action] | None],
    run: TableApplied,
    cutoff_ns: int,
    paths: Collection[str],
) -> str | None:
    """The reason why the files of a pass are kept; None: they may be deleted.

    The pass must be older than the cutoff by our clock and by the time of its tombstones.
    """
    wanted = set(paths)
    if started_ns(run.run, INT64_MAX) >= cutoff_ns:
        return "grace"
    times = _tombstones(actions_of(run.committed_version) or [], run)
    if not wanted <= times.keys():
        return "gap"
    if any(times[path] * 10**6 >= cutoff_ns for path in wanted):
        return "grace"
    for version in range(run.committed_version + 1, newest + 1):
        actions = actions_of(version)
        if actions is None:
            return "gap"
        if wanted & set(_named(actions)):
            return "restored"
    return None


def _tombstones(actions: Sequence[entries.Action], run: TableApplied) -> dict[str, int]:
    """Decoded path → milliseconds since the epoch of the removals in the entry of a pass; none in another entry."""
    if run.started_ns not in {(action.get("txn") or {}).get("version") for action in actions}:
        return {}
    removes = (action["remove"] for action in actions if action.get("remove"))
    return {unquote(each["path"]): int(each.get("deletionTimestamp") or 0) for each in removes}


def _named(actions: Iterable[entries.Action]) -> Iterator[str]:
    """The decoded paths of all files that actions add or remove."""
    for action in actions:
        fields = action.get("add") or action.get("remove")
        if fields:
            yield unquote(fields["path"])


def _existing(table: OpenedTable, paths: Iterable[str]) -> dict[str, int]:
    """Path → bytes of those files that exist."""
    in_order = sorted(paths)
    lengths = files.lengths([files.join(table.location, path) for path in in_order])
    pairs = zip(in_order, lengths, strict=True)
    return {path: length for path, length in pairs if length is not None}
