"""Leases: at most one maintainer and one appender at a time; the death of a process releases its lease."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from retention.errors import BusyError
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors
from retention.stores.checks.exclusion import refuse_without_exclusion

KINDS = ("maintenance", "append", "sync")

EXPIRY_S = 60.0
"""The time, in seconds, for which a lease on an object store outlives its holder."""
_POLL_S = 0.05
_SETTLE_S = 0.2


def can_expire(root: str) -> bool:
    """Whether a lease there may be taken over from a process that stands still: on a local disk only death frees it."""
    return files.is_remote(root)


@contextmanager
def lease(
    root: str,
    kind: str,
    clock: Callable[[], int],
    *,
    wait_s: float = 0.0,
    expiry_s: float = EXPIRY_S,
) -> Iterator[None]:
    """Hold a stream's lease during the block. It only saves rivals wasted work; commits provide the exclusion.

    Args:
        root: `<warehouse>/streams/<name>`.
        kind: one of `KINDS`.
        clock: the wall clock, nanoseconds since the epoch; tells rivals when the lease was taken.
        wait_s: the time to wait for a live holder, seconds.
        expiry_s: on object stores, the time from a dead holder's last renewal until its lease is free, seconds.

    Raises:
        BusyError: another process holds it.
        RefusedError: commits do not exclude each other at that location.
    """
    place = files.join(root, "_retention", f"{kind}.lease")
    refuse_without_exclusion(root)
    if files.is_remote(root):
        with _held_object(place, clock(), wait_s, expiry_s):
            yield
        return
    with held(place, _owner(clock()), wait_s=wait_s):
        yield


@contextmanager
def held(place: str, owner: bytes | None = None, *, wait_s: float) -> Iterator[None]:
    """Hold the operating system's lock on a local file during the block.

    Args:
        place: the file; it remains after the lock is released.
        owner: the file's text about the holder.
        wait_s: the time to wait for the lock, seconds.

    Raises:
        BusyError: another process holds it.
    """
    files.make_directory(place.rpartition("/")[0])
    with as_storage_errors(place):
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with as_storage_errors(place):
            _share_as_directory(descriptor, place)
            _lock(descriptor, place, wait_s)
            if owner is not None:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, owner, 0)
        reached(Step.LEASE_TAKEN)
        yield
    finally:
        # Closing releases the lock even if it fails; the operating system does the same for a killed process.
        with suppress(OSError):
            os.close(descriptor)


def _share_as_directory(descriptor: int, place: str) -> None:
    """Let every user with write access to the directory hold the lock; earlier versions let only the file's owner."""
    writers = os.stat(place.rpartition("/")[0]).st_mode & 0o022  # noqa: PTH116
    wanted = writers | writers << 1
    mode = os.fstat(descriptor).st_mode & 0o777
    if wanted & ~mode:
        # Only the owner may change the mode; for others the file was already accessible.
        with suppress(OSError):
            os.fchmod(descriptor, mode | wanted)


def holder(root: str, kind: str) -> str | None:
    """The holder of a stream's lease, in words; None if no process holds it.

    This takes a local lock for an instant, shared with other inspecting processes.
    """
    place = files.join(root, "_retention", f"{kind}.lease")
    if files.is_remote(root):
        owner = files.read_bytes(place)
        return None if owner is None else _named(owner)
    with suppress(FileNotFoundError):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _named(os.pread(descriptor, 4096, 0))
        finally:
            os.close(descriptor)
    return None


def _lock(descriptor: int, place: str, wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise _busy(place, os.pread(descriptor, 4096, 0)) from error
            time.sleep(_POLL_S)
        else:
            return


@contextmanager
def _held_object(place: str, since_ns: int, wait_s: float, expiry_s: float) -> Iterator[None]:
    """Hold an object that names its owner; a thread renews it while the block runs.

    An object without a write for `expiry_s` is free; a holder that lost its lease never writes it again.
    """
    token = uuid.uuid4().hex
    owner = _owner(since_ns, token)
    _acquire(place, owner, wait_s, expiry_s)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(expiry_s / 4):
            with suppress(OSError):
                if files.read_bytes(place) != owner:
                    return
                files.replace(place, owner)

    keeper = threading.Thread(target=renew, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()
        # The work is done: a lease that cannot be released expires.
        with suppress(OSError):
            if files.read_bytes(place) == owner:
                files.delete([place])


def _acquire(place: str, owner: bytes, wait_s: float, expiry_s: float) -> None:
    first, began = _written_ms(place), time.monotonic()
    until = began + wait_s
    while True:
        written = _written_ms(place)
        # The store's clock may have been set back, so an object without a write while we waited is free, too.
        unwritten = written == first and time.monotonic() - began >= expiry_s
        if written is None or unwritten or _store_clock_ms(place) - written >= expiry_s * 1000:
            files.replace(place, owner)
            time.sleep(_SETTLE_S)
            if files.read_bytes(place) == owner:
                return
        elif written != first and time.monotonic() >= until:
            # Renewed while we waited: its holder is alive.
            raise _busy(place, files.read_bytes(place) or b"")
        time.sleep(min(1.0, expiry_s / 10))


def _written_ms(place: str) -> int | None:
    try:
        return files.stat(place)[1]
    except FileNotFoundError:
        return None


def _store_clock_ms(place: str) -> int:
    """The object store's own time, so that machine clocks need not agree."""
    probe = f"{place}.{uuid.uuid4().hex}"
    files.replace(probe, b"")
    written = files.stat(probe)[1]
    files.delete([probe])
    return written


def _owner(since_ns: int, token: str = "") -> bytes:
    fields = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since_ns": since_ns,
        "token": token,
    }
    return json.dumps(fields).encode()


def _busy(place: str, owner: bytes) -> BusyError:
    return BusyError(
        f"{place}: held by {_named(owner)}; nothing was changed; try again when it is done"
    )


def _named(owner: bytes) -> str:
    with suppress(ValueError, KeyError, TypeError, OverflowError, OSError):
        fields = parse_json(owner)
        since = datetime.fromtimestamp(fields["since_ns"] // 10**9, UTC)
        return f"process {fields['pid']} on {fields['host']}, since {since:%Y-%m-%dT%H:%M:%SZ}"
    return "another process"
