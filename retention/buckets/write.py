"""Writing to a bucket: a message's expectation of its key is checked at the commit that stores it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from retention.buckets.entry import Value, octets_of
from retention.buckets.read import BucketReader
from retention.context.context import OpenedStream
from retention.context.position import Position
from retention.core import headers, kv
from retention.core.bucket_names import KEY_PATTERN, check_key
from retention.core.headers import EXPECTED_SUBJECT_SEQ
from retention.core.units import SECOND, go_duration
from retention.errors import KeyExistsError, RefusedError, RevisionError, UsageError
from retention.formats.jsonl import PUBLISHED
from retention.ingest.publish import publish_decided, publish_made, refuse_at_once
from retention.ingest.turns import ONE_BY_ONE, AllAtOnce

CONTENTION_WAIT_S = 30.0
"""The time, in seconds, after which a write gives up because other writers keep committing first."""
_STANDING = ("seq", "headers")


@dataclass(frozen=True)
class Standing:
    """The last entry of a key, as far as a write depends on it."""

    revision: int = 0
    """0: the key has no entry."""
    is_deletion: bool = False


Expect: TypeAlias = Callable[[Callable[[], Standing]], int | None]
"""The revision that a write expects of its key, given a function for its standing; None: any. Raises to cancel the
write."""


class BucketWriter:
    """Writes to one bucket; each is one commit, and takes the next sequence of its stream as its revision."""

    def __init__(self, opened: OpenedStream, reader: BucketReader) -> None:
        """Store the stream that keeps the bucket, and a reader of the bucket."""
        self._opened = opened
        self._reader = reader
        self._turns = AllAtOnce(max(opened.wait_s, CONTENTION_WAIT_S))

    def put(self, key: str, value: Value) -> int:
        """Set the value of a key, regardless of its current value; return the new revision.

        Raises:
            UsageError: the key is not valid, or the value cannot be stored.
            RefusedError: the bucket is a mirror, or full, or refuses values of this size.
            BusyError: other writers kept committing first.
        """
        return self._write_anyway(key, octets_of(value), [])

    def put_all(self, values: Iterable[tuple[str, Value]]) -> tuple[int, int]:
        """Set the values of many keys in one commit, in their order; return the first and the last revision.

        Raises:
            UsageError, RefusedError, BusyError: as `put`; nothing was written. Or there is no value.
        """
        self._refuse_mirror()
        pairs = [(key, octets_of(value)) for key, value in values]
        if not pairs:
            raise UsageError(
                f"bucket {self._reader.bucket}: no value is given, so there is nothing to put"
            )
        keys = pa.array([key for key, _ in pairs], pa.string())
        for key in keys.filter(pc.invert(pc.match_substring_regex(keys, f"^{KEY_PATTERN}$"))):
            check_key(key.as_py())
        subjects = pc.binary_join_element_wise(self._reader.prefix, keys, "")
        payloads = pa.array([value for _, value in pairs], pa.binary())

        def make(now_ns: int) -> pa.Table:
            return _messages(subjects, b"", payloads, now_ns)

        appended = publish_made(self._opened, make, ONE_BY_ONE).appended
        return appended.first_seq, appended.last_seq

    def create(self, key: str, value: Value, ttl_ns: int | None = None) -> int:
        """Set the value of a key that has none, was deleted, or has expired; return its revision.

        Args:
            key: the key.
            value: its value.
            ttl_ns: the time after which it expires, nanoseconds; requires a bucket with `limit_marker_ttl`.

        Raises:
            KeyExistsError: the key has a value.
            UsageError, RefusedError, BusyError: as `put`.
        """

        def expect(look: Callable[[], Standing]) -> int:
            standing = look()
            if standing.revision and not standing.is_deletion:
                raise KeyExistsError(self._reader.bucket, key, 0, standing.revision)
            return standing.revision

        return self._write(key, octets_of(value), _ttl(ttl_ns), expect)

    def update(self, key: str, value: Value, revision: int, ttl_ns: int | None = None) -> int:
        """Set the value of a key that is at a given revision; return the new one.

        Args:
            key: the key.
            value: its value.
            revision: the required last revision; 0: the key must have none.
            ttl_ns: as for `create`; the broker's clients set none here, its server accepts one.

        Raises:
            RevisionError: the key is at another revision.
            UsageError, RefusedError, BusyError: as `put`.
        """
        return self._write(key, octets_of(value), _ttl(ttl_ns), self._exactly(key, revision))

    def delete(self, key: str, revision: int | None = None) -> int:
        """Delete a key and keep its history; return the revision of the deletion.

        Args:
            key: the key.
            revision: the required last revision; 0: the key must have none; None: any.

        Raises:
            RevisionError: the key is at another revision.
            UsageError, RefusedError, BusyError: as `put`.
        """
        operation = [(headers.KV_OPERATION, "DEL")]
        if revision is None:
            return self._write_anyway(key, b"", operation)
        return self._write(key, b"", operation, self._last(key, revision))

    def purge(self, key: str, revision: int | None = None, ttl_ns: int | None = None) -> int:
        """Delete a key with its history; return the revision of the deletion, which expires after `ttl_ns`, if given.

        Args:
            key: the key.
            revision: the required last revision; 0: the key must have none; None: any.
            ttl_ns: nanoseconds; requires a bucket with `limit_marker_ttl`.

        Raises:
            RevisionError: the key is at another revision.
            UsageError, RefusedError, BusyError: as `put`; or a run on the bucket is in progress, and does not end.
        """
        operation = [(headers.KV_OPERATION, "PURGE"), (headers.ROLLUP, "sub"), *_ttl(ttl_ns)]
        return self._write(key, b"", operation, self._last(key, revision))

    def _last(self, key: str, revision: int | None) -> Expect:
        if revision is not None and revision < 0:
            raise UsageError(
                f"revision {revision} is not valid: give one from 1 on, 0 for a key without one, or omit it"
            )
        return _anything if revision is None else self._exactly(key, revision)

    def _exactly(self, key: str, revision: int) -> Expect:
        def expect(look: Callable[[], Standing]) -> int:
            standing = look()
            if standing.revision != revision:
                raise RevisionError(self._reader.bucket, key, revision, standing.revision)
            return revision

        return expect

    def _write_anyway(self, key: str, value: bytes, lines: list[tuple[str, str]]) -> int:
        """Write an entry that expects nothing of its key and replaces nothing."""
        subject = self._writable(key)

        def make(now_ns: int) -> pa.Table:
            return _message(subject, lines, value, now_ns)

        return int(publish_made(self._opened, make, self._turns).answers.seqs[0])

    def _write(self, key: str, value: bytes, lines: list[tuple[str, str]], expect: Expect) -> int:
        subject = self._writable(key)

        def message(expected: int | None, now_ns: int) -> pa.Table:
            named = [] if expected is None else [(EXPECTED_SUBJECT_SEQ, str(expected))]
            return _message(subject, [*lines, *named], value, now_ns)

        def decide(position: Position, now_ns: int) -> pa.Table:
            try:
                expected = expect(lambda: self._standing(position, subject, now_ns))
            except RevisionError as error:
                refuse_at_once(self._opened, message(error.expected, now_ns))
                raise
            return message(expected, now_ns)

        rolls_up = any(name == headers.ROLLUP for name, _ in lines)
        published = publish_decided(self._opened, decide, self._turns, rolls_up=rolls_up)
        return int(published.answers.seqs[0])

    def _writable(self, key: str) -> str:
        """The subject of a key that this bucket may change."""
        check_key(key)
        self._refuse_mirror()
        return f"{self._reader.prefix}{key}"

    def _standing(self, position: Position, subject: str, now_ns: int) -> Standing:
        messages = self._reader.messages_in(position.inventory.files, now_ns)
        rows = messages.last(subject, _STANDING)
        if not rows.num_rows:
            return Standing()
        is_deletion = kv.operations(rows["headers"])[0].as_py() != kv.PUT
        return Standing(rows["seq"][0].as_py(), is_deletion)

    def _refuse_mirror(self) -> None:
        if self._opened.config.mirror is not None:
            raise RefusedError(
                f"bucket {self._reader.bucket}: it mirrors {self._opened.config.mirror.name}, and only that bucket "
                "changes it; nothing was written; write to the mirrored bucket"
            )


def _anything(_: Callable[[], Standing]) -> None:
    """Expect nothing, and read nothing."""


def _ttl(ttl_ns: int | None) -> list[tuple[str, str]]:
    """The header of a key's own TTL (ADR-43)."""
    if ttl_ns is None:
        return []
    if ttl_ns < SECOND:
        raise UsageError(f"a TTL of {go_duration(ttl_ns)} is too short; give at least 1s")
    return [(headers.TTL, go_duration(ttl_ns))]


def _message(subject: str, lines: list[tuple[str, str]], value: bytes, now_ns: int) -> pa.Table:
    """One message, shape `PUBLISHED`."""
    block = headers.build(sorted(lines))
    return _messages(pa.array([subject]), block, pa.array([value], pa.binary()), now_ns)


def _messages(subjects: pa.Array, block: bytes, payloads: pa.Array, now_ns: int) -> pa.Table:
    """Messages with the same headers, shape `PUBLISHED`."""
    count = len(subjects)
    columns = {
        "subject": subjects,
        "headers": pa.repeat(pa.scalar(block or None, pa.binary()), count),
        "payload": payloads,
        "ts_ns": pa.repeat(pa.scalar(now_ns, pa.int64()), count),
        "origin_ts_ns": pa.nulls(count, pa.int64()),
        "line": pa.array(range(1, count + 1), pa.int64()),
    }
    return pa.table(columns, schema=PUBLISHED)
