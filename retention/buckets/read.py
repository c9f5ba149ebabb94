"""Reading a bucket: a key's value or history, keys and their last values, now or at a revision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from retention.buckets.entry import COLUMNS, Entry, entries_of
from retention.context.context import OpenedStream
from retention.core import kv
from retention.core.bucket_names import bucket_of, check_key, check_key_filter, subject_prefix
from retention.errors import MissingKeyError
from retention.inspect.key_messages import KeyMessages
from retention.ports import VersionToken
from retention.rules.jetstream.key_view import KeyView
from retention.schemas.files import FILE_STATS

_ALL = ">"
_OF_KEYS = ("seq", "subject", "headers")


class BucketReader:
    """Reads of one bucket; the log's state and subject digests are cached between them."""

    def __init__(self, opened: OpenedStream) -> None:
        """Store the stream that keeps the bucket; nothing is read yet."""
        self._opened = opened
        self._mutex = Lock()
        self._token: VersionToken | None = None
        self._files = FILE_STATS.empty_table()
        self.table_id: str | None = None
        """The id of the table at the last read; None: there was none."""
        self.bucket = bucket_of(opened.name) or opened.name
        self.prefix = subject_prefix(_origin_of(opened) or self.bucket)
        """The prefix of keys in the subjects of messages; a mirror has its origin's."""

    def messages(self) -> KeyMessages:
        """The current messages of keys."""
        return self.messages_in(self._newest_files(), self._opened.clock())

    def messages_in(self, files: pa.Table, now_ns: int) -> KeyMessages:
        """The messages of keys at one version of the stream and an instant.

        Args:
            files: those of the version, shape `FILE_STATS`.
            now_ns: nanoseconds since the epoch.
        """
        view = KeyView.of(self._opened.config.policy(), now_ns)
        return KeyMessages(self._opened.store, files, view, self._opened.digests)

    def get(self, key: str, revision: int | None = None) -> Entry:
        """The value of a key, now or at a revision.

        Raises:
            UsageError: the key is not valid.
            MissingKeyError: there is no such key or revision, or it is deleted, or expired.
            DamagedError: a required file is damaged.
        """
        if revision is None:
            check_key(key)
            rows = self.messages().last(f"{self.prefix}{key}", COLUMNS)
            entry = next(entries_of(self.bucket, self.prefix, rows), None)
        else:
            among = (entry for entry in self._history(key) if entry.revision == revision)
            entry = next(among, None)
        if entry is None or entry.is_deletion:
            raise MissingKeyError(self.bucket, key, revision, entry.operation if entry else None)
        return entry

    def history(self, key: str) -> list[Entry]:
        """The kept values of a key, and its deletions, oldest first.

        Raises:
            UsageError: the key is not valid.
            MissingKeyError: there is none.
            DamagedError: a required file is damaged.
        """
        entries = self._history(key)
        if not entries:
            raise MissingKeyError(self.bucket, key)
        return entries

    def keys(self, filters: Sequence[str] = ()) -> list[str]:
        """The keys that have a value, sorted; with filters, only matching keys.

        Raises:
            UsageError: a filter matches no key.
            DamagedError: a required file is damaged.
        """
        keys: list[str] = []
        messages = self.messages()
        for rows in messages.rows_at(messages.last_seqs(self.subjects(filters)), _OF_KEYS):
            live = pc.equal(kv.operations(rows["headers"]), kv.PUT)
            names = pc.utf8_slice_codeunits(rows["subject"].filter(live), len(self.prefix))
            keys += names.to_pylist()
        return sorted(keys)

    def last_entries(self, filters: Sequence[str] = ()) -> Iterator[Entry]:
        """The last entry of each key, including deletions, ascending by revision; with filters, only of matching keys.

        Raises:
            UsageError: a filter matches no key.
            DamagedError: a required file is damaged.
        """
        messages = self.messages()
        for rows in messages.rows_at(messages.last_seqs(self.subjects(filters)), COLUMNS):
            yield from entries_of(self.bucket, self.prefix, rows)

    def subjects(self, filters: Sequence[str]) -> list[str]:
        """The subjects for filters of keys; without filters, all keys.

        Raises:
            UsageError: a filter matches no key.
        """
        for pattern in filters:
            check_key_filter(pattern)
        return [f"{self.prefix}{pattern}" for pattern in filters or (_ALL,)]

    def _history(self, key: str) -> list[Entry]:
        check_key(key)
        rows = self.messages().history(f"{self.prefix}{key}", COLUMNS)
        return list(entries_of(self.bucket, self.prefix, rows))

    def _newest_files(self) -> pa.Table:
        """The stream's files, shape `FILE_STATS`; read again if the log has advanced, or may have."""
        store = self._opened.store
        with self._mutex:
            token = store.version_token()
            if token is None or token != self._token:
                self._files, self._token, self.table_id = FILE_STATS.empty_table(), None, None
                if store.exists():
                    snapshot = store.snapshot()
                    self.table_id = snapshot.table_id
                    self._files = store.inventory(snapshot).files
                    self._token = token if token is not None and token.tells(snapshot) else None
            return self._files


def _origin_of(opened: OpenedStream) -> str | None:
    """The bucket that a bucket mirrors; None: it is not a mirror, or not of a bucket."""
    mirror = opened.config.mirror
    return None if mirror is None else bucket_of(mirror.name)
