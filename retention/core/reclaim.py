"""The rule for deletion of dead files: a function of the records of runs and of the table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Reason(StrEnum):
    """The reason why a file is dead."""

    REMOVED = "removed"
    """A recorded run removed it from the table."""
    ABANDONED = "abandoned"
    """A recorded run wrote it and committed nothing."""


class Hindrance(StrEnum):
    """The reason to keep a dead file."""

    LIVE = "live"
    """The table has it: it was restored."""
    UNFINISHED = "unfinished"
    """A run with an unknown outcome names it."""
    GAP = "gap"
    """The log has lost entries younger than the grace, which may name it."""
    RECENT = "recent"
    """A log entry younger than the grace names it: a version added or removed it."""
    GRACE = "grace"
    """Dead for a shorter time than the grace."""
    HELD = "held"
    """A legal hold may cover one of its messages."""


@dataclass(frozen=True)
class DeadFile:
    """A data file that a run removed, or wrote and never committed, by the run's record."""

    path: str
    """Relative to `messages/`."""
    file_bytes: int
    reason: Reason
    since_ns: int
    """The latest recorded instant of its death, nanoseconds since the epoch."""
    under_it: frozenset[str] = frozenset()
    """The paths of the data files under this vector, each with a subject digest; empty: it is a data file."""


@dataclass(frozen=True)
class Evidence:
    """The state of a table and its runs that decides about dead files."""

    cutoff_ns: int
    """The end of the grace, by the storage's clock: files that died later are kept. Nanoseconds since the epoch."""
    live: Collection[str]
    """Paths of the newest version."""
    recent: Collection[str]
    """Paths named by log entries since the cutoff, as added or as removed."""
    unfinished: Collection[str]
    """Paths in the records of runs with an unknown outcome."""
    is_whole: bool = True
    """Whether the log has every entry since the cutoff."""
    held: Collection[str] = frozenset()
    """Paths of files that may have messages under a legal hold."""


@dataclass(frozen=True)
class DeadFileDecision:
    """The dead files to delete, and those to keep, each with the first reason."""

    to_delete: tuple[DeadFile, ...]
    kept: Mapping[Hindrance, tuple[DeadFile, ...]]


def hindrance(file: DeadFile, evidence: Evidence) -> Hindrance | None:
    """The first reason to keep a dead file; None: it may be deleted."""
    if file.path in evidence.live:
        return Hindrance.LIVE
    if file.path in evidence.unfinished:
        return Hindrance.UNFINISHED
    if file.since_ns >= evidence.cutoff_ns:
        return Hindrance.GRACE
    if not evidence.is_whole:
        return Hindrance.GAP
    if file.path in evidence.recent:
        return Hindrance.RECENT
    return Hindrance.HELD if file.path in evidence.held else None


def decide_dead(files: Iterable[DeadFile], evidence: Evidence) -> DeadFileDecision:
    """Split dead files into those to delete and those to keep; a path that died twice counts with its latest death."""
    to_delete: list[DeadFile] = []
    kept: dict[Hindrance, list[DeadFile]] = {}
    for file in latest_deaths(files):
        reason = hindrance(file, evidence)
        (to_delete if reason is None else kept.setdefault(reason, [])).append(file)
    return DeadFileDecision(
        tuple(to_delete), {reason: tuple(held) for reason, held in kept.items()}
    )


def latest_deaths(files: Iterable[DeadFile]) -> list[DeadFile]:
    """Each path once, sorted, with its latest death; a path is abandoned if any record says so.

    If a file was removed, restored by `undo` and removed again, the second removal counts.
    """
    latest: dict[str, DeadFile] = {}
    for file in files:
        known = latest.get(file.path, file)
        reason = (
            Reason.ABANDONED if Reason.ABANDONED in (known.reason, file.reason) else file.reason
        )
        newer = max(known, file, key=lambda death: death.since_ns)
        under_it = known.under_it | file.under_it
        latest[file.path] = replace(newer, reason=reason, under_it=under_it)
    return [latest[path] for path in sorted(latest)]


@dataclass(frozen=True)
class LogWindow:
    """The log entries younger than the grace that still exist."""

    versions: tuple[int, ...]
    """Ascending."""
    is_whole: bool
    """Whether no entry is missing, within the window or before it."""


def log_window(entries: Mapping[int, int], states: Mapping[int, int], cutoff_ns: int) -> LogWindow:
    """The window of a log, from the first entry that the storage wrote at or after the cutoff.

    Entries are written in the order of their versions. If the storage's clock was set back for a
    while, an entry looks older than its predecessors. So the window begins at the lowest young
    version, not after the last old one.

    Args:
        entries: version → storage time of the existing log entries, nanoseconds since the epoch.
        states: version → storage time of full states (a checkpoint, a list), which replace all entries up to them.
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
