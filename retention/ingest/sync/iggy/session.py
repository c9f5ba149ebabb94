"""A sync of one topic from its configuration: the connection, the run, and what comes along with the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from retention.config.nested import TopicSyncSource
from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.units import MINUTE
from retention.errors import UsageError
from retention.iggy.connection import PATIENCE_S, Connection
from retention.iggy.settings import iggy_settings
from retention.iggy.topic import RemoteTopic
from retention.iggy.wire import TopicInfo
from retention.ingest.sync.configuration import keep_configuration
from retention.ingest.sync.iggy.configuration import settings_there, topic_difference_notes
from retention.ingest.sync.iggy.offsets import bring_readers
from retention.ingest.sync.iggy.result import TopicSynced
from retention.ingest.sync.iggy.run import Along, follow_topic_sync, run_topic_sync
from retention.ingest.sync.options import CopyOptions, SyncBounds
from retention.storage.signals import NO_STOP, Stop

FOLLOW_PATIENCE_S = 600.0
"""The time for which a followed server may be away, seconds."""
READERS_EVERY_NS = MINUTE
"""The time between two looks at the server's readers while a topic is followed, nanoseconds."""
Run = Callable[[OpenedStream, RemoteTopic, SyncBounds, Along], TopicSynced]
"""`run_topic_sync` or `follow_topic_sync`."""


@dataclass(frozen=True)
class TopicSyncOptions(CopyOptions):
    """The choices of a call, beside the topic's `sync` in the configuration."""

    consumers: tuple[str, ...] = ()
    """Consumers whose offsets come along, by name or number, because a server lists none."""


OPTIONS = TopicSyncOptions()


def sync_topic(opened: OpenedStream, options: TopicSyncOptions = OPTIONS) -> TopicSynced:
    """Bring a topic up to the last offsets that its server has now; see `run_topic_sync`.

    Raises:
        UsageError: the topic has no `sync` in its configuration, an option is wrong, or Iggy's client is not installed.
        RefusedError, BusyError, DamagedError: as `run_topic_sync`.
        StorageError: the server cannot be reached.
    """
    return _synced(opened, options, run_topic_sync, PATIENCE_S)


def follow_topic(
    opened: OpenedStream, options: TopicSyncOptions = OPTIONS, stop: Stop = NO_STOP
) -> TopicSynced:
    """Keep a topic in step with its server; see `follow_topic_sync`.

    Raises:
        UsageError, RefusedError, BusyError, DamagedError, StorageError: as `sync_topic`.
    """
    run = partial(follow_topic_sync, stop=stop)
    return _synced(opened, options, run, FOLLOW_PATIENCE_S, stop)


def _synced(
    opened: OpenedStream,
    options: TopicSyncOptions,
    run: Run,
    patience_s: float,
    stop: Stop = NO_STOP,
) -> TopicSynced:
    sync = _source_of(opened)
    bounds = options.bounds(sync.max_missed)
    with _remote(opened, sync, options, patience_s, stop) as remote:
        along = _Along(opened, remote, options)
        synced = run(opened, remote, bounds, along)
        return replace(synced, notes=[*synced.notes, *along.notes()])


def _source_of(opened: OpenedStream) -> TopicSyncSource:
    sync = topic_of(opened).sync
    if sync is None:
        raise UsageError(
            f"{opened.name}: it has no sync in its configuration, so it copies no server's topic; nothing was "
            "copied; add `sync: {server: HOST:PORT, stream: NAME}` to its entry, or name a topic that has it"
        )
    return sync


@contextmanager
def _remote(
    opened: OpenedStream,
    sync: TopicSyncSource,
    options: TopicSyncOptions,
    patience_s: float,
    stop: Stop,
) -> Iterator[RemoteTopic]:
    stream = sync.stream or topic_of(opened).stream or ""
    settings = iggy_settings(options.server or sync.server or None)
    with Connection(settings, patience_s, stop=stop) as connection:
        yield RemoteTopic(connection, stream, sync.topic or opened.name)


class _Along:
    """The things that come along with the messages of a run."""

    def __init__(
        self, opened: OpenedStream, remote: RemoteTopic, options: TopicSyncOptions
    ) -> None:
        self._opened, self._remote, self._options = opened, remote, options
        self._brought_ns: int | None = None
        self._info: TopicInfo | None = None

    def __call__(self, info: TopicInfo) -> None:
        """Bring the readers' offsets, at most once a minute while a topic is followed."""
        self._info = info
        options, now = self._options, self._opened.clock()
        if not (options.with_consumers or options.consumers):
            return
        if self._brought_ns is None or now - self._brought_ns >= READERS_EVERY_NS:
            self._brought_ns = now
            bring_readers(self._opened, self._remote, info, options.consumers)

    def notes(self) -> list[str]:
        """Keep the server's settings if they are wanted, and return a sentence about what differs."""
        if not self._options.with_config or self._info is None:
            return []
        settings = settings_there(self._info)
        if self._opened.table.exists():
            keep_configuration(self._opened, settings)
        return topic_difference_notes(self._opened, settings)
