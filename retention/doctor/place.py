"""Checks of a warehouse's location: its capabilities, tested with real files that are deleted afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from retention.config.shared_directories import shared, shared_directories
from retention.core.units import SECOND, format_size
from retention.doctor.finding import Finding, ok, problem, problem_of_error, warning
from retention.errors import RetentionError
from retention.storage import files
from retention.storage.bucket_versions import bucket_versions
from retention.stores.checks.capability_probe import (
    commits_exclude,
    local_abilities,
    trial_place,
    write_and_read,
)

_CLOCKS_APART_MS = 5_000
_LITTLE_ROOM = 1 << 30
_NO_ROOM = 16 << 20
_PERMISSIONS = "permissions"
_WRITABLE = "mount it writable, or give this user the right to write there"
_OTHER_PLACE = "keep the warehouse on another file system"


def check_place(location: str, clock: Callable[[], int]) -> Iterator[Finding]:
    """Test reading, writing, the clock and capabilities in a warehouse."""
    place = _existing(location)
    if place != location:
        yield ok("warehouse", f"{location} does not exist yet; the first write creates it")
    try:
        with trial_place(place) as trial:
            before = clock()
            written_ms = write_and_read(trial)
            yield ok(_PERMISSIONS, f"files can be listed, created, read and removed in {place}")
            yield _clock(before, clock(), written_ms)
            if not files.is_remote(place):
                for name, ability in local_abilities().items():
                    yield _ability(name, place, ability, trial)
            yield _ability("commits", place, commits_exclude, trial)
    except (OSError, RetentionError) as error:
        yield _refused(place, error)
    if files.is_remote(place):
        yield from check_versions(place)
    else:
        yield _room(place)


def check_versions(location: str, stream: str | None = None) -> Iterator[Finding]:
    """Ask the store of an `s3://` location whether its bucket keeps what is deleted."""
    kept = bucket_versions(location)
    sentences = list(kept.sentences())
    if not sentences:
        detail = (
            f"s3://{kept.bucket} keeps no older versions, and has no object lock or replication"
        )
        yield ok("versions", detail, stream)
    for sentence in sentences:
        detail, _, remedy = sentence.partition(": ")[2].rpartition(": ")
        yield warning("versions", f"s3://{kept.bucket} {detail}", remedy, stream)


def check_names(location: str, streams: Sequence[str]) -> Iterator[Finding]:
    """Verify that each stream has a directory of its own: a file system may treat two names as one."""
    doubled = shared_directories(location, streams)
    for directory, first, second in doubled:
        yield problem_of_error(f"names {first} and {second}", shared(directory, second, first))
    if not doubled:
        yield ok("names", "each stream has a directory of its own")


def _refused(place: str, error: Exception) -> Finding:
    reason = getattr(error, "strerror", None) or str(error)
    if files.is_remote(place):
        remedy = "check the bucket's name, the endpoint, and the rights of the credentials"
        return problem(_PERMISSIONS, f"{place}: cannot be read and written ({reason})", remedy)
    return problem(
        _PERMISSIONS,
        f"{place}: nothing can be written there ({reason}), so only commands that look work",
        _WRITABLE,
    )


def _existing(location: str) -> str:
    """The location, or the nearest directory above it that exists."""
    if files.is_remote(location):
        return location
    path = Path(location)
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return location if path == Path(location) else str(path)


def _clock(before_ns: int, after_ns: int, written_ms: int) -> Finding:
    """Compare this machine's clock with the one that stamps files: ages and tombstones depend on both."""
    early, late = before_ns // 1_000_000 - written_ms, written_ms - after_ns // 1_000_000
    apart = max(early, late, 0)
    if apart > _CLOCKS_APART_MS:
        way = "ahead of" if early > 0 else "behind"
        return warning(
            "clock",
            f"this machine's clock is {apart / 1000:,.0f} s {way} the file system's",
            "set both by NTP; until then give --as-of",
        )
    return ok("clock", "this machine's clock and the file system's agree")


def _ability(name: str, place: str, tried: Callable[[str], bool], trial: str) -> Finding:
    try:
        held = tried(trial)
    except Exception as error:  # any error of the file system is the finding
        detail = next(iter(str(error).splitlines()), type(error).__name__)
        return problem(name, f"{place}: this location has no {name} ({detail})", _OTHER_PLACE)
    if not held:
        return problem(
            name,
            f"{place}: {name} do not exclude each other there: the second of two succeeded",
            "use a store with conditional put (If-None-Match)"
            if files.is_remote(place)
            else _OTHER_PLACE,
        )
    return ok(name, f"{name} work: tested")


def _room(place: str) -> Finding:
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return problem_of_error("free space", error)
    detail = f"{format_size(free)} are free in {place}"
    remedy = "free space, or run `retention apply` to remove old messages"
    if free < _NO_ROOM:
        return problem("free space", detail, remedy)
    return (
        warning("free space", detail, remedy) if free < _LITTLE_ROOM else ok("free space", detail)
    )


def check_history_clock(
    newest_ns: int | None, now_ns: int, remedy: str, stream: str | None = None
) -> Finding | None:
    """The problem of a clock behind the latest applied instant, which blocks every run; None: it is not behind."""
    if newest_ns is None or newest_ns <= now_ns:
        return None
    return problem(
        "clock",
        f"the clock is {(newest_ns - now_ns) / SECOND:,.0f} s behind the latest instant that was applied",
        remedy,
        stream,
    )
