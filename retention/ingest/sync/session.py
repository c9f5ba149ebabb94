"""A sync of one stream by its configuration: the connection, the run, and consumers and configuration beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from retention.config.nested import SyncSource
from retention.context.context import OpenedStream
from retention.core.units import MINUTE
from retention.errors import UsageError
from retention.ingest.sync.configuration import difference_notes, keep_configuration
from retention.ingest.sync.consumers import bring_consumers
from retention.ingest.sync.frame import run_frame
from retention.ingest.sync.options import CopyOptions, SyncBounds
from retention.ingest.sync.result import Synced
from retention.ingest.sync.run import follow_sync, run_sync
from retention.storage.signals import NO_STOP, Stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from retention.nats.stream import RemoteStream

Run = Callable[["OpenedStream", "RemoteStream", SyncBounds, Callable[[int], None]], Synced]
"""`run_sync`, `follow_sync`, or `run_frame` of a frame."""
CONSUMERS_EVERY_NS = MINUTE
"""The time between two looks at the server's consumers while a stream is followed, nanoseconds."""


@dataclass(frozen=True)
class SyncOptions(CopyOptions):
    """The choices of a call, beside the stream's `sync` in the configuration."""

    context: str | None = None
    """A context of the `nats` command, instead of the configured one."""


OPTIONS = SyncOptions()


def sync_stream(opened: OpenedStream, options: SyncOptions = OPTIONS) -> Synced:
    """Bring a stream up to the last sequence that its server has now; see `run_sync`.

    Raises:
        UsageError: the stream has no `sync` in its configuration, or an option is wrong.
        RefusedError: as `run_sync`; or the server cannot be reached or refuses.
        BusyError: as `run_sync`.
    """
    return _synced(opened, options, run_sync)


def follow_stream(
    opened: OpenedStream, options: SyncOptions = OPTIONS, stop: Stop = NO_STOP
) -> Synced:
    """Keep a stream in step with its server; see `follow_sync`.

    Raises:
        UsageError: as `sync_stream`.
        RefusedError: as `sync_stream`.
        BusyError: as `sync_stream`.
    """
    return _synced(opened, options, partial(follow_sync, stop=stop), stop)


def sync_frame(opened: OpenedStream, frame: DataFrame, options: SyncOptions = OPTIONS) -> Synced:
    """Copy the rows of a Spark DataFrame that tasks read from the stream's server; see `run_frame`.

    Raises:
        UsageError: as `sync_stream`, or as `run_frame`.
        RefusedError: as `run_frame`; or the server cannot be reached or refuses.
        BusyError: as `run_sync`.
    """
    return _synced(opened, options, partial(run_frame, frame))


def _synced(opened: OpenedStream, options: SyncOptions, run: Run, stop: Stop = NO_STOP) -> Synced:
    sync = _source_of(opened)
    bounds = options.bounds(sync.max_missed)
    with _remote(opened, sync, options, stop) as remote:
        along = _Along(opened, remote, options)
        synced = run(opened, remote, bounds, along)
        along.bring(synced.position)
        return replace(synced, notes=along.notes())


def _source_of(opened: OpenedStream) -> SyncSource:
    if opened.config.sync is None:
        raise UsageError(
            f"{opened.name}: it has no sync in its configuration, so it copies no server's stream; nothing was "
            "copied; add `sync: {server: nats://…}` to its entry, or name a stream that has it"
        )
    return opened.config.sync


@contextmanager
def _remote(
    opened: OpenedStream, sync: SyncSource, options: SyncOptions, stop: Stop
) -> Iterator[RemoteStream]:
    from retention.nats.connection import Connection
    from retention.nats.settings import settings_of
    from retention.nats.stream import RemoteStream

    is_given = options.server is not None or options.context is not None
    server, context = (
        (options.server, options.context)
        if is_given
        else (sync.server or None, sync.context or None)
    )
    with Connection.open(settings_of(server, context), stop) as connection:
        yield RemoteStream(connection, sync.stream or opened.name)


class _Along:
    """The consumers and the configuration that come along with the messages of a run."""

    def __init__(self, opened: OpenedStream, remote: RemoteStream, options: SyncOptions) -> None:
        self._opened, self._remote, self._options = opened, remote, options
        self._brought_ns: int | None = None

    def __call__(self, last_seq: int) -> None:
        """Bring the consumers at the beginning of a run, and again when a minute has passed."""
        now = self._opened.clock()
        if self._brought_ns is None or now - self._brought_ns >= CONSUMERS_EVERY_NS:
            self._brought_ns = now
            self.bring(last_seq)

    def bring(self, last_seq: int) -> None:
        """Bring the consumers, if they are wanted; `last_seq` is the stream's last sequence here."""
        if self._options.with_consumers:
            bring_consumers(self._opened, self._remote, last_seq)

    def notes(self) -> list[str]:
        """Keep the server's configuration if it is wanted, and return a sentence about what differs."""
        if not self._options.with_config:
            return []
        config = self._remote.info().config
        keep_configuration(self._opened, config)
        return difference_notes(self._opened.config, config)
