"""One key-value bucket of the Python API: values by key, checked at the commit; history, watch and locks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from retention.api.log import BoundPlan
from retention.api.public import Public
from retention.api.stream import Stream
from retention.buckets.entry import Entry, Value
from retention.buckets.lock import Lifetime, Lock
from retention.buckets.read import BucketReader
from retention.buckets.status import BucketStatus, status_of
from retention.buckets.watch import POLL_S, Watcher, WatchOptions
from retention.buckets.write import BucketWriter
from retention.context.topic import refuse_topic
from retention.core.arguments import checked_class
from retention.core.display import fields_html
from retention.core.units import SECOND, parse_duration
from retention.engines.select import Engines
from retention.planners.requests import plan_removal
from retention.rules.purge_deletes import purge_deletes_request

if TYPE_CHECKING:
    from retention.views.frames import Entries

MARKER_THRESHOLD = "30m"
"""The age from which `purge_deletes` removes deletions themselves, unless another is given (nats.go)."""
LOCK_WAIT = "1m"


@checked_class
class Bucket(Public):
    """A bucket of a warehouse: the stream named `KV_` plus the bucket's name (ADR-8)."""

    def __init__(self, stream: Stream) -> None:
        """Wrap the stream that keeps the bucket; nothing is read yet.

        Raises:
            UsageError: it is a topic.
        """
        refuse_topic(stream.opened.config, "which has no keys", "name another bucket")
        self.stream = stream
        self._reader = BucketReader(stream.opened)
        self._writer = BucketWriter(stream.opened, self._reader)

    @property
    def name(self) -> str:
        """The bucket's name, without the stream's `KV_`."""
        return self._reader.bucket

    def get(self, key: str, revision: int | None = None) -> Entry:
        """The value of a key, now or at a kept revision.

        Raises:
            MissingKeyError: there is none, or it is deleted, purged or expired.
            UsageError: the key is not valid.
        """
        return self._reader.get(key, revision)

    def put(self, key: str, value: Value) -> int:
        """Set the value of a key, regardless of its current value; return the new revision.

        Args:
            key: letters, digits and any of `- / _ = .`
            value: bytes, text, or a JSON value.

        Raises:
            UsageError: the key is not valid, or the value cannot be stored.
            RefusedError: the bucket mirrors another, is full, or refuses values of this size.
            BusyError: other writers kept committing first.
        """
        return self._writer.put(key, value)

    def put_all(self, values: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> tuple[int, int]:
        """Set the values of many keys in one commit; return the first and the last revision.

        Args:
            values: key → value, or pairs of them; if a key occurs twice, all its values are kept, as history allows.

        Raises:
            UsageError, RefusedError, BusyError: as `put`; nothing was written.
        """
        return self._writer.put_all(values.items() if isinstance(values, Mapping) else values)

    def create(self, key: str, value: Value, ttl: str | int | None = None) -> int:
        """Set the value of a key that has none; return its revision. Of several concurrent calls, one succeeds.

        Args:
            key: as for `put`.
            value: as for `put`.
            ttl: the time after which it expires, such as `30s`, or nanoseconds; requires a `limit_marker_ttl`.

        Raises:
            KeyExistsError: the key has a value; `actual` is its revision.
            UsageError, RefusedError, BusyError: as `put`.
        """
        return self._writer.create(key, value, _ns(ttl))

    def update(self, key: str, value: Value, revision: int) -> int:
        """Set the value of a key that is at a given revision; return the new one.

        Args:
            key: as for `put`.
            value: as for `put`.
            revision: as returned by `get` or a write; 0: the key must have no entry.

        Raises:
            RevisionError: the key is at another revision, `actual`; nothing was changed.
            UsageError, RefusedError, BusyError: as `put`.
        """
        return self._writer.update(key, value, revision)

    def delete(self, key: str, revision: int | None = None) -> int:
        """Delete a key; its history is kept and includes the deletion. Return the deletion's revision.

        Args:
            key: as for `put`.
            revision: the required last revision; 0: the key must have none; None: any.

        Raises:
            RevisionError: the key is at another revision, `actual`; nothing was changed.
            UsageError, RefusedError, BusyError: as `put`.
        """
        return self._writer.delete(key, revision)

    def purge(self, key: str, revision: int | None = None, ttl: str | int | None = None) -> int:
        """Delete a key with its history and keep only the deletion; return the deletion's revision.

        Args:
            key: as for `put`.
            revision: the required last revision; 0: the key must have none; None: any.
            ttl: the time after which the deletion expires; requires a `limit_marker_ttl`.

        Raises:
            RevisionError: the key is at another revision, `actual`; nothing was changed.
            UsageError, RefusedError, BusyError: as `put`.
        """
        return self._writer.purge(key, revision, _ns(ttl))

    def keys(self, *filters: str) -> list[str]:
        """The keys that have a value, sorted.

        Args:
            filters: patterns in which `*` is any one token of a key and a final `>` any that follow; a key must match
                one.

        Raises:
            UsageError: a filter matches no key.
        """
        return self._reader.keys(filters)

    def entries(self, *filters: str) -> Entries:
        """The last values of keys, ascending by revision; `to_pandas()` makes a data frame of them.

        Args:
            filters: as for `keys`.

        Raises:
            UsageError: a filter matches no key.
        """
        from retention.views.frames import Entries

        entries = self._reader.last_entries(filters)
        return Entries(entry for entry in entries if not entry.is_deletion)

    def history(self, key: str) -> Entries:
        """All kept values of a key, and its deletions, oldest first.

        Raises:
            MissingKeyError: there is none.
            UsageError: the key is not valid.
        """
        from retention.views.frames import Entries

        return Entries(self._reader.history(key))

    def status(self) -> BucketStatus:
        """The numbers of the bucket, and its settings."""
        return status_of(self._reader, self.stream.opened.config)

    def watch(
        self,
        *filters: str,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        resume_from: int | None = None,
        poll: str | int = f"{POLL_S:g}s",
    ) -> Watcher:
        """Watch keys: an iterator over their last values, then None, then every new entry.

        Args:
            filters: as for `keys`.
            include_history: begin with all kept values, not only the last.
            updates_only: begin with new entries.
            ignore_deletes: omit deletions and purges.
            resume_from: begin with all kept values from this revision on.
            poll: the time between two reads of the log.

        Raises:
            UsageError: a filter matches no key, or the options exclude each other.
        """
        options = WatchOptions(include_history, updates_only, ignore_deletes, resume_from)
        return Watcher(
            BucketReader(self.stream.opened), filters, options, parse_duration(poll) / SECOND
        )

    def purge_deletes(self, older_than: str | int = MARKER_THRESHOLD) -> BoundPlan:
        """Plan the removal of deleted keys with their history; `apply` of the plan carries it out.

        A deletion younger than `older_than` is kept, for readers that follow the bucket.

        Args:
            older_than: a duration, or nanoseconds; 0: no deletion is kept.

        Raises:
            UsageError: it is not a duration, or negative.
            RefusedError: the bucket is sealed, or denies purges.
        """
        request = purge_deletes_request(parse_duration(older_than))
        with Engines(self.stream.engine) as engines:
            return BoundPlan(self.stream, plan_removal(self.stream.opened, request, engines).plan)

    def lock(
        self,
        key: str,
        ttl: str | int | None = None,
        wait: str | int = LOCK_WAIT,
        skew: str | int | None = None,
    ) -> Lock:
        """A lock for a `with` block: one holder at a time; renewed while the block runs, released at its end.

        Args:
            key: its name.
            ttl: the time after which a dead holder loses it; None: the bucket's TTL. Any other TTL requires a bucket
                with `limit_marker_ttl`.
            wait: how long to wait for another holder.
            skew: the largest difference between holders' clocks; None: a tenth of `ttl`.

        Raises:
            UsageError: the bucket's values never expire, or not after this TTL.
        """
        opened = self.stream.opened
        lifetime = Lifetime.of(opened.config, _ns(ttl), _ns(skew))
        # The renewing thread has a reader of its own.
        reader = BucketReader(opened)
        return Lock(
            reader, BucketWriter(opened, reader), key, lifetime, parse_duration(wait) / SECOND
        )

    def __repr__(self) -> str:
        return f"Bucket({self.name!r})"

    def _repr_html_(self) -> str:
        return fields_html("bucket", self.status().display_fields())


def _ns(duration: str | int | None) -> int | None:
    return None if duration is None else parse_duration(duration)
