"""Leases: one maintainer and one appender at a time, held by a process and free the moment it dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from retention import files
from retention.errors import BusyError

EXPIRY_S = 60.0
"""How long a lease on an object store outlives its holder."""
_POLL_S = 0.05
_SETTLE_S = 0.2


@contextmanager
def lease(
    root: str, kind: str, wait_s: float = 0.0, *, expiry_s: float = EXPIRY_S
) -> Iterator[None]:
    """Hold a stream's lease during the block; it saves rivals wasted work, commits are what excludes.

    Args:
        root: `<warehouse>/streams/<name>`.
        kind: `maintenance` or `append`.
        wait_s: how long to wait for a living holder.
        expiry_s: on object stores, how long after its last sign of life a dead holder's lease is free.

    Raises:
        BusyError: someone else holds it.
    """
    place = files.join(root, "_retention", f"{kind}.lease")
    if files.is_remote(root):
        with _held_object(place, wait_s, expiry_s):
            yield
        return
    with held(place, _owner(), wait_s):
        yield


@contextmanager
def held(place: str, owner: bytes | None = None, wait_s: float | None = None) -> Iterator[None]:
    """Hold the operating system's lock on a local file during the block.

    Args:
        place: the file; it stays when the lock goes.
        owner: what the file says about the holder.
        wait_s: how long to wait for it; None: as long as it takes.

    Raises:
        BusyError: someone else holds it.
    """
    files.make_directory(str(Path(place).parent))
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock(descriptor, place, wait_s)
        if owner is not None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner, 0)
        yield
    finally:
        # Closing lets the lock go; the operating system does the same for a killed process.
        os.close(descriptor)


def _lock(descriptor: int, place: str, wait_s: float | None) -> None:
    if wait_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                since_ms = os.fstat(descriptor).st_mtime_ns // 1_000_000
                raise _busy(place, os.pread(descriptor, 4096, 0), since_ms) from error
            time.sleep(_POLL_S)
        else:
            return


@contextmanager
def _held_object(place: str, wait_s: float, expiry_s: float) -> Iterator[None]:
    """An object that names its owner, written again and again while the block runs.

    One that nobody has written for `expiry_s` is free; a lease that its holder lost is never written again.
    """
    token = uuid.uuid4().hex
    _acquire(place, token, wait_s, expiry_s)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(expiry_s / 4):
            with suppress(OSError):
                if not _is_owner(place, token):
                    return
                files.replace(place, _owner(token))

    keeper = threading.Thread(target=renew, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()
        if _is_owner(place, token):
            files.delete([place])


def _acquire(place: str, token: str, wait_s: float, expiry_s: float) -> None:
    first, until = _written_ms(place), time.monotonic() + wait_s
    while True:
        written = _written_ms(place)
        if written is None or _store_clock_ms(place, token) - written >= expiry_s * 1000:
            files.replace(place, _owner(token))
            time.sleep(_SETTLE_S)
            if _is_owner(place, token):
                return
        elif written != first and time.monotonic() >= until:
            # Written since we look: its holder lives.
            raise _busy(place, files.read_bytes(place) or b"", written)
        time.sleep(min(1.0, expiry_s / 10))


def _is_owner(place: str, token: str) -> bool:
    return token.encode() in (files.read_bytes(place) or b"")


def _written_ms(place: str) -> int | None:
    try:
        return files.stat(place)[1]
    except FileNotFoundError:
        return None


def _store_clock_ms(place: str, token: str) -> int:
    """The object store's own time, so that clocks of machines need not agree."""
    probe = f"{place}.{token}"
    files.replace(probe, b"")
    written = files.stat(probe)[1]
    files.delete([probe])
    return written


def _owner(token: str = "") -> bytes:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "token": token}).encode()


def _busy(place: str, owner: bytes, since_ms: int) -> BusyError:
    who = "another process"
    with suppress(ValueError, KeyError, TypeError):
        said = json.loads(owner)
        who = f"process {said['pid']} on {said['host']}"
    since = datetime.fromtimestamp(since_ms // 1000, UTC)
    return BusyError(
        f"{place}: held by {who}, since {since:%Y-%m-%dT%H:%M:%SZ}; nothing was changed; try again when it is done"
    )
