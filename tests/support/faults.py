"""Fault injection for storage: all operations of a process below a folder are counted, and planned ones fail.

Operations are Python's system calls for files, from any caller, and calls of deltalake.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

Answer = TypeVar("Answer")
SLOW_S = 0.01


class Kind(StrEnum):
    """The kind of failure of an operation."""

    BEFORE = "error before"
    """The operation is not executed; the caller sees an error."""
    AFTER = "error after success"
    """The operation is executed; the caller sees an error."""
    DEAD = "error after success, and ever after"
    """The same, and all later operations fail."""
    RIVAL = "success told as a rival's"
    """The operation is executed, and the answer is that a rival was first, as after a duplicate request."""
    FULL = "full disk"
    SHORT = "short write"
    """Half of the data is written, then the disk is full."""
    STALE = "stale list"
    """The newest entry is missing."""
    SLOW = "slow"


READS = ("stat", "open", "read", "delta open")
WRITES = ("mkdir", "replace", "rename", "link", "symlink", "truncate", "create", "write")
_KINDS: Mapping[str, tuple[Kind, ...]] = {
    **dict.fromkeys(READS, (Kind.BEFORE,)),
    **dict.fromkeys(WRITES, (Kind.BEFORE, Kind.AFTER, Kind.DEAD, Kind.FULL)),
    "list": (Kind.BEFORE, Kind.STALE),
    "write": (Kind.BEFORE, Kind.DEAD, Kind.FULL, Kind.SHORT),
    "close": (Kind.AFTER,),
    "lock": (Kind.BEFORE,),
    "link": (Kind.BEFORE, Kind.AFTER, Kind.DEAD, Kind.FULL, Kind.RIVAL),
}


def kinds_of(operation: str) -> tuple[Kind, ...]:
    """The possible failures of an operation."""
    return _KINDS.get(operation, (Kind.BEFORE, Kind.AFTER, Kind.DEAD))


@dataclass(frozen=True)
class Call:
    """An operation, its number among those of its kind, and the kind of its path."""

    operation: str
    nth: int
    place: str


@dataclass(frozen=True)
class Fault:
    """A call that must fail."""

    operation: str
    nth: int
    kind: Kind


class Storage:
    """Counts operations below a folder, and fails planned ones."""

    def __init__(self, folder: Path, plan: tuple[Fault, ...] = (), slow_s: float = 0.0) -> None:
        """Create without watching yet.

        Args:
            folder: operations elsewhere pass through.
            plan: the planned faults.
            slow_s: the delay of each operation, seconds.
        """
        self._folder = str(folder)
        self._plan = {(fault.operation, fault.nth): fault.kind for fault in plan}
        self._slow_s = slow_s
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._dead = False
        self.calls: list[Call] = []
        self.met: list[Call] = []

    def do(
        self, operation: str, place: str, act: Callable[[], Answer], failing: type = OSError
    ) -> Answer:
        """Execute an operation, or fail it."""
        kind = self._next(operation, place)
        time.sleep(self._slow_s)
        if self._dead or kind is Kind.BEFORE:
            raise _error(errno.EIO, place, failing)
        if kind is Kind.FULL:
            raise _error(errno.ENOSPC, place, failing)
        answer = act()
        if kind in (Kind.AFTER, Kind.DEAD):
            self._dead = kind is Kind.DEAD
            _let_go(answer)
            raise _error(errno.EIO, place, failing)
        if kind is Kind.RIVAL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place)
        return answer

    def kind(self, operation: str, nth: int) -> Kind | None:
        """The planned failure of a call; None: it does not fail."""
        return self._plan.get((operation, nth))

    def mine(self, place: Any) -> bool:
        """Whether a path is in the folder."""
        return isinstance(place, str | os.PathLike) and os.fspath(place).startswith(self._folder)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Intercept every operation of this process during the block."""
        with ExitStack() as patches:
            for owner, name, replacement in _replacements(self):
                patches.enter_context(patch.object(owner, name, replacement))
            yield

    def _next(self, operation: str, place: str) -> Kind | None:
        with self._lock:
            self._counts[operation] += 1
            call = Call(operation, self._counts[operation], sort_of(place, self._folder))
            self.calls.append(call)
            kind = self.kind(operation, call.nth)
            if kind is not None:
                self.met.append(call)
            return kind


def sort_of(place: str, folder: str) -> str:
    """The part of the warehouse of a path, without names that differ between runs."""
    parts = [part for part in place.removeprefix(folder).split("/") if part]
    if parts[:1] == ["streams"]:
        inside = "_delta_log" if "_delta_log" in parts else "/".join(parts[2:4])
        head = inside if parts[2:3] == ["_retention"] or inside == "_delta_log" else parts[2:3]
        return "".join(head).partition(".")[0] or "streams"
    return parts[0].partition(".")[0] if parts else "."


class _File(io.FileIO):
    """A file that counts its reads, writes and close as operations."""

    def __init__(self, storage: Storage, place: str, mode: str) -> None:
        self._storage, self._place = storage, place
        self._full = False
        super().__init__(place, mode)

    def readinto(self, buffer: Any) -> int:
        return self._storage.do("read", self._place, lambda: io.FileIO.readinto(self, buffer))

    def readall(self) -> bytes:
        return self._storage.do("read", self._place, lambda: io.FileIO.readall(self))

    def write(self, content: Any) -> int:
        if self._full:
            raise _error(errno.ENOSPC, self._place, OSError)

        def act() -> int:
            called = next(c for c in reversed(self._storage.calls) if c.operation == "write")
            if self._storage.kind("write", called.nth) is not Kind.SHORT:
                return io.FileIO.write(self, content)
            self._full = True
            return io.FileIO.write(self, memoryview(content)[: max(1, len(content) // 2)])

        return self._storage.do("write", self._place, act)

    def close(self) -> None:
        if not self.closed:
            act = super().close
            try:
                self._storage.do("close", self._place, act)
            finally:
                act()


def _replacements(storage: Storage) -> Iterator[tuple[Any, str, Any]]:
    """The patches: owner, name, replacement."""
    for operation, name in (
        *(("stat", "stat"), ("stat", "lstat"), ("list", "scandir"), ("list", "listdir")),
        *(("mkdir", "mkdir"), ("rmdir", "rmdir"), ("replace", "replace")),
        *(("rename", "rename"), ("delete", "unlink"), ("link", "link"), ("symlink", "symlink")),
    ):
        yield os, name, _by_path(storage, operation, getattr(os, name))
    for owner, operation, name in (
        *((os, "sync", "fsync"), (os, "truncate", "ftruncate"), (os, "write", "pwrite")),
        *((os, "close", "close"), (fcntl, "lock", "flock")),
    ):
        yield owner, name, _by_descriptor(storage, operation, getattr(owner, name))
    yield os, "open", _descriptor_opener(storage, os.open)
    yield io, "open", _opener(storage, io.open)
    yield pa, "OSFile", _arrow_opener(storage, pa.OSFile)
    for operation, name in (("delta open", "__init__"), ("delta checkpoint", "create_checkpoint")):
        yield DeltaTable, name, _of_table(storage, operation, getattr(DeltaTable, name))


def _by_path(storage: Storage, operation: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(*arguments: Any, **options: Any) -> Any:
        # Of two paths, the second one changes.
        place = arguments[-1] if operation in ("replace", "rename", "link", "symlink") else None
        place = place or (arguments[0] if arguments else ".")
        if not storage.mine(place):
            return real(*arguments, **options)
        found = storage.do(operation, os.fspath(place), lambda: real(*arguments, **options))
        if operation == "list":
            last = next(c for c in reversed(storage.calls) if c.operation == "list")
            entries = list(found)
            if storage.kind("list", last.nth) is Kind.STALE and entries:
                entries.remove(max(entries, key=_age(os.fspath(place))))
            return entries if real.__name__ == "listdir" else _Listing(entries)
        return found

    return replacement


def _age(directory: str) -> Callable[[Any], tuple[float, str]]:
    """The sort key to find the newest entry of a directory."""

    def key(entry: Any) -> tuple[float, str]:
        name = entry if isinstance(entry, str) else entry.name
        return Path(directory, name).lstat().st_ctime, name

    return key


class _Listing:
    """A stand-in for the result of `os.scandir`."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


def _by_descriptor(
    storage: Storage, operation: str, real: Callable[..., Any]
) -> Callable[..., Any]:
    def replacement(descriptor: int, *arguments: Any) -> Any:
        place = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if not storage.mine(place):
            return real(descriptor, *arguments)
        return storage.do(operation, place, lambda: real(descriptor, *arguments))

    return replacement


def _descriptor_opener(storage: Storage, real: Callable[..., int]) -> Callable[..., int]:
    def replacement(place: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if not storage.mine(place):
            return real(place, flags, *arguments, **options)
        operation = "create" if flags & os.O_CREAT else "open"
        return storage.do(
            operation, os.fspath(place), lambda: real(place, flags, *arguments, **options)
        )

    return replacement


def _opener(storage: Storage, real: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(place: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not storage.mine(place):
            return real(place, mode, *arguments, **options)
        raw_mode = mode.replace("b", "").replace("t", "")
        writes = raw_mode != "r"
        raw = storage.do(
            "create" if writes else "open",
            os.fspath(place),
            lambda: _File(storage, os.fspath(place), raw_mode),
        )
        buffered = io.BufferedWriter(raw) if writes else io.BufferedReader(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments[1:2], **options)

    return replacement


def _arrow_opener(storage: Storage, real: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(place: str, mode: str = "r") -> Any:
        if not storage.mine(place):
            return real(place, mode)
        writes = mode.startswith("w")
        operation = "create" if writes else "open"
        raw = storage.do(operation, place, lambda: _File(storage, place, mode[0]))
        buffered = io.BufferedWriter(raw) if writes else io.BufferedReader(raw)
        return pa.PythonFile(buffered, mode=mode[0])

    return replacement


def _of_table(storage: Storage, operation: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(table: DeltaTable, *arguments: Any, **options: Any) -> Any:
        opened = arguments[0] if arguments else options.get("table_uri")
        place = str(opened) if operation == "delta open" else table.table_uri
        place = unquote(place.removeprefix("file://"))
        if not storage.mine(place):
            return real(table, *arguments, **options)
        inside = f"{place.rstrip('/')}/_delta_log"
        return storage.do(
            operation, inside, lambda: real(table, *arguments, **options), failing=_RustError
        )

    return replacement


class _RustError(OSError):
    """An error like those of deltalake: a text without a number."""


def _error(number: int, place: str, failing: type) -> OSError:
    if failing is _RustError:
        return OSError(f"Generic LocalFileSystem error: {os.strerror(number)} at {place}")
    return OSError(number, os.strerror(number), place)


def _let_go(answer: object) -> None:
    """Close the handle of an operation that its caller does not receive."""
    if isinstance(answer, io.FileIO):
        io.FileIO.close(answer)
