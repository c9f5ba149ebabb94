"""A lock on a key: acquired by create, renewed by update, released by delete with the holder's revision."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from retention.buckets.read import BucketReader
from retention.buckets.write import BucketWriter
from retention.config import StreamConfig
from retention.core.units import SECOND, format_duration
from retention.errors import (
    BusyError,
    CommitUnknownError,
    KeyExistsError,
    LockLostError,
    MissingKeyError,
    RetentionError,
    RevisionError,
    UsageError,
)
from retention.storage.elapsed import elapsed_ns

_RENEWALS = 3
"""Renewals in the lifetime of a lock."""
_LOOKS = 5
"""Reads of the key after a write of unknown outcome."""
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_PAUSE_PER_LOOK = 4
"""The longest random pause after a slow read, as a multiple of the read's duration."""


@dataclass(frozen=True)
class Lifetime:
    """The time after which a lock without renewal expires."""

    ttl_ns: int
    """Nanoseconds."""
    of_key: bool
    """Whether each of its values has a TTL of its own; False: the bucket's TTL applies."""
    skew_ns: int
    """The largest difference between holders' clocks, nanoseconds: a lock counts as lost this long before its end."""

    @classmethod
    def of(cls, config: StreamConfig, ttl_ns: int | None, skew_ns: int | None) -> Self:
        """The lifetime of a lock in a bucket.

        Args:
            config: the stream that keeps the bucket.
            ttl_ns: the requested TTL; None: the bucket's TTL.
            skew_ns: the difference between clocks; None: a tenth of the lifetime.

        Raises:
            UsageError: the bucket keeps values forever, or for another time than requested.
        """
        of_bucket = config.max_age_ns
        lasting = of_bucket if ttl_ns is None else ttl_ns
        if lasting is None or (not config.allow_msg_ttl and of_bucket is None):
            raise UsageError(
                f"{config.name}: its values never expire, so that the lock of a dead holder would remain forever; give "
                "the bucket a ttl in the configuration, or a limit_marker_ttl and the lock a ttl of its own"
            )
        if lasting < SECOND:
            raise UsageError(f"a lock needs a ttl of at least 1s, not {format_duration(lasting)}")
        real = _real_lifetime(config, lasting)
        if real != lasting:
            raise UsageError(
                f"{config.name}: a lock with a ttl of {format_duration(lasting)} would expire there after "
                f"{format_duration(real)}; give it that ttl, or change the bucket's ttl; a ttl of its own needs a "
                "bucket with limit_marker_ttl, and must not be shorter than that unless history is 1"
            )
        skew_ns = lasting // 10 if skew_ns is None else skew_ns
        if not 0 <= skew_ns <= lasting // 2:
            raise UsageError(
                f"clocks that are {format_duration(skew_ns)} apart are too far apart for a lock with a ttl of "
                f"{format_duration(lasting)}; give it a ttl of at least twice the difference"
            )
        return cls(lasting, config.allow_msg_ttl, skew_ns)


def _real_lifetime(config: StreamConfig, asked_ns: int) -> int:
    """The actual lifetime of a value stored with a TTL, nanoseconds (jetstream's clamp, `max_age`)."""
    of_bucket = config.max_age_ns
    if not config.allow_msg_ttl:
        return of_bucket or asked_ns
    real = asked_ns // SECOND * SECOND
    if config.max_msgs_per_subject != 1:
        real = max(real, (config.subject_delete_marker_ttl_ns or 0) // SECOND * SECOND)
    return real if of_bucket is None else min(real, of_bucket)


class Lock:
    """A lock of a bucket, for a `with` block; a thread renews it meanwhile.

    There is one holder at a time, as far as clocks agree: a lock expires by the reader's clock, counted from the
    instant of its renewal on the holder's clock (docs/buckets.md).
    """

    def __init__(
        self,
        reader: BucketReader,
        writer: BucketWriter,
        key: str,
        lifetime: Lifetime,
        wait_s: float,
    ) -> None:
        """Prepare the lock; it is not acquired before the block.

        Args:
            reader: a reader of the bucket.
            writer: a writer to the bucket.
            key: the lock's name.
            lifetime: the time after which a dead holder loses it.
            wait_s: how long to wait for another holder, in seconds.
        """
        self.key = key
        self.revision = 0
        """The revision held; 0: none. It rises with every renewal and every new holder, so it is a fencing token."""
        self._reader = reader
        self._writer = writer
        self._lifetime = lifetime
        self._wait_s = wait_s
        self._until_ns = 0
        self._lost: str | None = None
        self._ending = threading.Event()
        self._keeper: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Acquire the lock.

        Raises:
            BusyError: another holder has it, and does not release it in time.
            UsageError, RefusedError: as `BucketWriter.create`.
        """
        self._acquire()
        self._ending.clear()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the lock, if it is still held.

        Raises:
            LockLostError: it was lost before, and the block did not raise.
        """
        self._ending.set()
        if self._keeper is not None:
            self._keeper.join()
        if self._lost is None:
            self._release()
        revision, self.revision = self.revision, 0
        if kind is None and self._lost is not None:
            raise LockLostError(self._named, revision, self._lost)

    def check(self) -> None:
        """Verify that the lock is held; the block calls it before each protected action.

        Raises:
            LockLostError: it is not, or may not be.
        """
        if self._lost is None and elapsed_ns() >= self._until_ns:
            self._lost = "it was not renewed in time"
        if self._lost is not None:
            raise LockLostError(self._named, self.revision, self._lost)

    def _acquire(self) -> None:
        until, pause_s = time.monotonic() + self._wait_s, _FIRST_PAUSE_S
        self._lost = None
        while True:
            begun = time.monotonic()
            try:
                if self._take_if_free():
                    return
                busy = None
            except BusyError as error:
                busy = error
            now = time.monotonic()
            if now >= until:
                raise busy or self._held_error()
            # A waiter on a slow store leaves it to the holder.
            pause_s = max(min(2 * pause_s, _LONGEST_PAUSE_S), _PAUSE_PER_LOOK * (now - begun))
            time.sleep(min(random.uniform(0, pause_s), until - now))  # noqa: S311

    def _take_if_free(self) -> bool:
        """Acquire the lock if it is free; return whether it was. A read costs a tenth of an attempt."""
        with suppress(MissingKeyError):
            self._reader.get(self.key)
            return False
        try:
            self._take(lambda value: self._writer.create(self.key, value, self._ttl_ns))
        except KeyExistsError:
            return False
        return True

    def _keep(self) -> None:
        """Renew the lock until the block ends, or it is lost."""
        lifetime_s = self._lifetime.ttl_ns / SECOND
        while not self._ending.wait(lifetime_s / _RENEWALS):
            held = self.revision
            try:
                self._take(
                    lambda value: self._writer.update(self.key, value, held, self._ttl_ns)  # noqa: B023
                )
            except RevisionError as error:
                self._lost = _other_revision(error)
            except RetentionError as error:
                # A failed renewal may succeed before the lock expires.
                if elapsed_ns() >= self._until_ns:
                    self._lost = f"it could not be renewed ({error})"
            if self._lost is not None:
                return

    def _take(self, write: Callable[[str], int]) -> None:
        """Write a unique value and hold its revision; the lifetime counts from before the write."""
        value = f"{socket.gethostname()} process {os.getpid()} {uuid.uuid4().hex}"
        begun_ns = elapsed_ns()
        try:
            revision = write(value)
        except CommitUnknownError:
            stored = self._revision_of(value)
            if stored is None:
                raise
            revision = stored
        self.revision = revision
        self._until_ns = begun_ns + self._lifetime.ttl_ns - self._lifetime.skew_ns

    def _revision_of(self, value: str) -> int | None:
        """The revision of a value after a write of unknown outcome; None: it was not written."""
        for look in range(_LOOKS):
            time.sleep(look * _FIRST_PAUSE_S)
            try:
                entry = self._reader.get(self.key)
            except MissingKeyError:
                continue
            if entry.value == value.encode():
                return entry.revision
        return None

    def _release(self) -> None:
        """Delete the key, with retries as long as it exists."""
        while True:
            try:
                self._writer.delete(self.key, self.revision)
            except RevisionError as error:
                self._lost = _other_revision(error)
            except BusyError:
                if elapsed_ns() < self._until_ns:
                    continue
                raise
            return

    def _held_error(self) -> BusyError:
        return BusyError(
            f"{self._named} is held by {self._holder()}; nothing was done; try again later, or wait longer"
        )

    def _holder(self) -> str:
        try:
            entry = self._reader.get(self.key)
        except MissingKeyError:
            return "another holder until this moment"
        return (
            f"{entry.value.decode(errors='replace').rpartition(' ')[0]} (revision {entry.revision})"
        )

    @property
    def _ttl_ns(self) -> int | None:
        return self._lifetime.ttl_ns if self._lifetime.of_key else None

    @property
    def _named(self) -> str:
        return f"bucket {self._reader.bucket}: lock {self.key!r}"


def _other_revision(error: RevisionError) -> str:
    """The reason why a lock is lost, given that its revision is not its holder's."""
    return f"its key is at revision {error.actual}" if error.actual else "it expired"
