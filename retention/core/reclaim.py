"""The rule by which dead files of a stream may be deleted: a function of what records say of them and of the table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Reason(StrEnum):
    """The reason for which a file is dead."""

    REMOVED = "removed"
    """A run of ours removed it from the table."""
    ABANDONED = "abandoned"
    """A run of ours wrote it, and committed nothing."""


class Hindrance(StrEnum):
    """The reason for which a dead file stays."""

    LIVE = "live"
    """The table has it: it came back."""
    UNFINISHED = "unfinished"
    """A run of which nobody knows the outcome names it."""
    GAP = "gap"
    """The log has lost entries that are younger than the grace, which may name it."""
    RECENT = "recent"
    """A log entry that is younger than the grace names it: a version had it, or has taken it out."""
    GRACE = "grace"
    """Dead for a shorter time than the grace."""


@dataclass(frozen=True)
class DeadFile:
    """A data file that the table had, or was to have, by the records of a run."""

    path: str
    """Relative to `messages/`."""
    file_bytes: int
    reason: Reason
    since_ns: int
    """The latest of all instants that anything gives for its death, nanoseconds since the epoch."""


@dataclass(frozen=True)
class Evidence:
    """The state of a table and of its runs, as far as dead files rest on it."""

    cutoff_ns: int
    """The end of the grace, by the storage's clock: what died later stays. Nanoseconds since the epoch."""
    live: Collection[str]
    """Paths that the newest version has."""
    recent: Collection[str]
    """Paths that the log's entries since the cutoff name, whatever they say of them."""
    unfinished: Collection[str]
    """Paths in the records of runs without a certain outcome."""
    is_whole: bool = True
    """Whether the log has every entry since the cutoff."""


@dataclass(frozen=True)
class Judgement:
    """The dead files that may go, and those that stay, each with the first reason that holds it."""

    going: tuple[DeadFile, ...]
    staying: Mapping[Hindrance, tuple[DeadFile, ...]]


def hindrance(file: DeadFile, evidence: Evidence) -> Hindrance | None:
    """The reason for which a dead file stays; None: it may go."""
    if file.path in evidence.live:
        return Hindrance.LIVE
    if file.path in evidence.unfinished:
        return Hindrance.UNFINISHED
    if file.since_ns >= evidence.cutoff_ns:
        return Hindrance.GRACE
    if not evidence.is_whole:
        return Hindrance.GAP
    return Hindrance.RECENT if file.path in evidence.recent else None


def judge(files: Iterable[DeadFile], evidence: Evidence) -> Judgement:
    """Tell the dead files that may go from those that stay; of a path that died twice the latest death counts."""
    going: list[DeadFile] = []
    staying: dict[Hindrance, list[DeadFile]] = {}
    for file in latest_deaths(files):
        reason = hindrance(file, evidence)
        (going if reason is None else staying.setdefault(reason, [])).append(file)
    return Judgement(tuple(going), {reason: tuple(held) for reason, held in staying.items()})


def latest_deaths(files: Iterable[DeadFile]) -> list[DeadFile]:
    """Each path once, sorted, with its latest death; one that any record calls abandoned counts as that.

    Removed, brought back by `undo`, and removed again: the second removal counts.
    """
    latest: dict[str, DeadFile] = {}
    for file in files:
        known = latest.get(file.path, file)
        reason = (
            Reason.ABANDONED if Reason.ABANDONED in (known.reason, file.reason) else file.reason
        )
        newer = max(known, file, key=lambda death: death.since_ns)
        latest[file.path] = replace(newer, reason=reason)
    return [latest[path] for path in sorted(latest)]


@dataclass(frozen=True)
class LogWindow:
    """The entries of a log that are younger than the grace, as far as they are there."""

    versions: tuple[int, ...]
    """Ascending."""
    is_whole: bool
    """Whether none is missing among them, nor before them."""


def log_window(entries: Mapping[int, int], states: Mapping[int, int], cutoff_ns: int) -> LogWindow:
    """The window of a log from the first entry on that the storage wrote at the cutoff or later.

    Entries are written in the order of their versions. Where the storage's clock was set back for a while, an entry
    looks older than those before it; so the lowest young version counts, and not the first old one from the end.

    Args:
        entries: version → storage time of the log's entries that are there, nanoseconds since the epoch.
        states: version → storage time of whole states (a checkpoint, a list), which stand for all entries up to them.
        cutoff_ns: the end of the grace.
    """
    newest = max([*entries, *states], default=-1)
    first = min(
        (version for version, at_ns in entries.items() if at_ns >= cutoff_ns), default=newest + 1
    )
    before = first - 1
    rests = first == 0 or before in entries or states.get(before, cutoff_ns) < cutoff_ns
    wanted = range(first, newest + 1)
    present = tuple(version for version in wanted if version in entries)
    return LogWindow(present, rests and len(present) == len(wanted))


def spent_records(
    written: Mapping[int, int], in_force: int, named: Collection[int], cutoff_ns: int
) -> list[int]:
    """The numbers of records of row tombstones that nothing needs any more, ascending.

    A number above the one in force may be that of a commit under way. One below it that nobody named never will be:
    such a commit rests on the record that was in force before, and that one does not come back.

    Args:
        written: number → when the storage wrote the record, nanoseconds since the epoch.
        in_force: the number that the newest version names.
        named: the numbers that versions since the cutoff name, and runs that can be undone.
        cutoff_ns: the end of the grace.
    """
    return sorted(
        number
        for number, at_ns in written.items()
        if number < in_force and number not in named and at_ns < cutoff_ns
    )
