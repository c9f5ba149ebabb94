"""Leases: one maintainer and one appender at a time, held by a process and free the moment it dies."""

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
from datetime import datetime, timezone
from pathlib import Path

from retention import files
from retention.errors import BusyError

EXPIRY_S = 60.0
"""How long a lease on an object store outlives its holder."""
_POLL_S = 0.05


@contextmanager
def lease(
    root: str,
    kind: str,
    clock: Callable[[], int],
    *,
    wait_s: float = 0.0,
    expiry_s: float = EXPIRY_S,
) -> Iterator[None]:
    """Hold a stream's lease during the block; it saves rivals from wasted work, commits are what excludes.

    Args:
        root: `<warehouse>/streams/<name>`.
        kind: `maintenance` or `append`.
        clock: the wall clock, nanoseconds since the epoch; says since when it is held.
        wait_s: how long to wait for a living holder.
        expiry_s: on object stores, after how long a dead holder's lease is free.

    Raises:
        BusyError: someone else holds it.
    """
    place = files.join(root, "_retention", f"{kind}.lease")
    if files.is_remote(root):
        with _held_object(place, clock, wait_s, expiry_s):
            yield
        return
    with held(place, _owner(clock), wait_s):
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
                raise _busy(place, os.pread(descriptor, 4096, 0)) from error
            time.sleep(_POLL_S)
        else:
            return


@contextmanager
def _held_object(
    place: str, clock: Callable[[], int], wait_s: float, expiry_s: float
) -> Iterator[None]:
    """An object with owner and expiry, renewed while the block runs.

    A lease that its holder does not renew is waited out; one that is renewed has a living holder.
    """
    token = uuid.uuid4().hex
    _acquire(place, token, clock, (wait_s, expiry_s))
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(expiry_s / 3):
            with suppress(OSError):
                files.replace(place, _claim(token, clock, expiry_s))

    keeper = threading.Thread(target=renew, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()
        if _holder(place).get("token") == token:
            files.delete([place])


def _acquire(
    place: str, token: str, clock: Callable[[], int], seconds: tuple[float, float]
) -> None:
    wait_s, expiry_s = seconds
    first = _holder(place)
    until = time.monotonic() + wait_s
    while True:
        holder = _holder(place)
        free_ns = int(holder.get("expires_ns", 0))
        if clock() >= free_ns or free_ns - clock() > 2 * expiry_s * 1e9:
            files.replace(place, _claim(token, clock, expiry_s))
            time.sleep(_POLL_S)
            if _holder(place).get("token") == token:
                return
        elif holder != first and time.monotonic() >= until:
            raise _busy(place, json.dumps(holder).encode())
        time.sleep(min(_POLL_S * 10, max(_POLL_S, (free_ns - clock()) / 1e9)))


def _holder(place: str) -> dict[str, object]:
    with suppress(ValueError):
        said = json.loads(files.read_bytes(place) or b"{}")
        if isinstance(said, dict):
            return said
    return {}


def _claim(token: str, clock: Callable[[], int], expiry_s: float) -> bytes:
    said = json.loads(_owner(clock))
    return json.dumps(said | {"token": token, "expires_ns": clock() + int(expiry_s * 1e9)}).encode()


def _owner(clock: Callable[[], int]) -> bytes:
    return json.dumps(
        {"pid": os.getpid(), "host": socket.gethostname(), "since_ns": clock()}
    ).encode()


def _busy(place: str, owner: bytes) -> BusyError:
    who = "another process"
    with suppress(ValueError, KeyError, TypeError):
        said = json.loads(owner)
        since = datetime.fromtimestamp(said["since_ns"] // 10**9, timezone.utc)
        who = f"process {said['pid']} on {said['host']}, since {since:%Y-%m-%dT%H:%M:%SZ}"
    return BusyError(f"{place}: held by {who}; nothing was changed; try again when it is done")
