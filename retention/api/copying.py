"""Copies of other streams: mirrors and sources within a warehouse, and streams of live servers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Concatenate, TypeVar

from retention.api.selection import StreamSelection
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.core.outcomes import Outcome, Watch, act_sequentially
from retention.errors import UsageError
from retention.storage.signals import Stop
from retention.views.outcomes import Outcomes

if TYPE_CHECKING:
    from retention.api.repairs import Instant
    from retention.ingest.mirror.run import Mirrored
    from retention.ingest.sync.iggy.result import TopicSynced
    from retention.ingest.sync.iggy.session import TopicSyncOptions
    from retention.ingest.sync.result import Synced
    from retention.ingest.sync.session import SyncOptions

Options = TypeVar("Options")
Copied = TypeVar("Copied")


@checked_class
class Copying(StreamSelection):
    """The part of a warehouse that copies new messages, from its own streams and from live servers."""

    clock: Callable[[], int]

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that was written to."""

    @abstractmethod
    def instant(self, as_of: Instant) -> int:
        """An instant in nanoseconds since the epoch; None: the clock's."""

    def mirror(
        self, names: Iterable[str] | None = None, as_of: Instant = None, watch: Watch | None = None
    ) -> list[Outcome[Mirrored]]:
        """Carry new messages to streams (all with a mirror or sources, if `names` is None), origins first.

        Messages of sources are stored at `as_of`, those of a mirror keep their time.

        Raises:
            UsageError: `as_of` is not an instant, or later than the clock.
        """
        from retention.ingest.mirror.origin import in_order, origins_of
        from retention.ingest.mirror.run import run_mirror

        chosen = self._named(names, among=self.mirrored())
        instant = self.instant(as_of)
        if instant > self.clock():
            raise UsageError("messages cannot be stored later than now: give an earlier as_of")

        def act(name: str) -> Mirrored:
            target = self._known(name)
            return run_mirror(target, list(origins_of(target.config, self._known)), instant)

        return Outcomes(
            act_sequentially(in_order(self.config.streams, chosen), act, self.clock, watch)
        )

    def synced(self) -> list[str]:
        """The names of the streams with `sync` in their configuration."""
        return [stream.name for stream in self.config.streams if stream.sync is not None]

    def sync(
        self,
        names: Iterable[str] | None = None,
        options: SyncOptions | None = None,
        watch: Watch | None = None,
    ) -> list[Outcome[Synced]]:
        """Bring streams (all with `sync`, if `names` is None) up to the last sequence that their servers have now.

        Args:
            names: names, or patterns of names.
            options: the connection and the bounds; None: those of the configuration.
            watch: called with the outcome of each stream.
        """
        from retention.ingest.sync.session import OPTIONS, sync_stream

        chosen = self._named(names, among=self.synced())
        return Outcomes(self._on_each(chosen, sync_stream, options or OPTIONS, watch))

    def follow(self, name: str, options: SyncOptions | None = None) -> Outcome[Synced]:
        """Keep a stream in step with its server until a signal ends this process, or the server's stream is sealed.

        Args:
            name: the stream.
            options: the connection and the bounds; None: those of the configuration.
        """
        from retention.ingest.sync.session import OPTIONS, follow_stream

        (outcome,) = self._on_each([name], follow_stream, options or OPTIONS)
        return outcome

    def follow_streams(
        self,
        names: Iterable[str] | None = None,
        options: SyncOptions | None = None,
        watch: Watch | None = None,
    ) -> list[Outcome[Synced]]:
        """Keep streams (all with `sync`, if `names` is None) in step with their servers until a signal.

        Each has a thread and a connection of its own. One that fails stops no other.

        Args:
            names: names, or patterns of names.
            options: the connection and the bounds; None: those of the configuration.
            watch: called with the outcome of each stream as soon as it has ended.

        Raises:
            KeyboardInterrupt, Terminated: after a signal, if a stream had not begun or does not end.
        """
        from retention.ingest.sync.session import OPTIONS, follow_stream

        chosen = self._named(names, among=self.synced())
        return Outcomes(self._follow_each(chosen, follow_stream, options or OPTIONS, watch))

    def synced_topics(self) -> list[str]:
        """The names of the topics with `sync` in their configuration."""
        return [
            stream.name
            for stream in self.config.streams
            if stream.topic is not None and stream.topic.sync is not None
        ]

    def sync_topics(
        self,
        names: Iterable[str] | None = None,
        options: TopicSyncOptions | None = None,
        watch: Watch | None = None,
    ) -> list[Outcome[TopicSynced]]:
        """Bring topics (all with `sync`, if `names` is None) up to the last offsets that their servers have now.

        Args:
            names: names, or patterns of names.
            options: the connection and the bounds; None: those of the configuration.
            watch: called with the outcome of each topic.
        """
        from retention.ingest.sync.iggy.session import OPTIONS, sync_topic

        chosen = self._named(names, among=self.synced_topics())
        return Outcomes(self._on_each(chosen, sync_topic, options or OPTIONS, watch))

    def follow_topic(
        self, name: str, options: TopicSyncOptions | None = None
    ) -> Outcome[TopicSynced]:
        """Keep a topic in step with its server until a signal ends this process.

        Args:
            name: the topic.
            options: the connection and the bounds; None: those of the configuration.
        """
        from retention.ingest.sync.iggy.session import OPTIONS, follow_topic

        (outcome,) = self._on_each([name], follow_topic, options or OPTIONS)
        return outcome

    def follow_topics(
        self,
        names: Iterable[str] | None = None,
        options: TopicSyncOptions | None = None,
        watch: Watch | None = None,
    ) -> list[Outcome[TopicSynced]]:
        """Keep topics (all with `sync`, if `names` is None) in step with their servers until a signal.

        Each has a thread and a connection of its own. One that fails stops no other.

        Args:
            names: names, or patterns of names.
            options: the connection and the bounds; None: those of the configuration.
            watch: called with the outcome of each topic as soon as it has ended.

        Raises:
            KeyboardInterrupt, Terminated: after a signal, if a topic had not begun or does not end.
        """
        from retention.ingest.sync.iggy.session import OPTIONS, follow_topic

        chosen = self._named(names, among=self.synced_topics())
        return Outcomes(self._follow_each(chosen, follow_topic, options or OPTIONS, watch))

    def _follow_each(
        self,
        names: Iterable[str],
        follow: Callable[Concatenate[OpenedStream, Options, ...], Copied],
        options: Options,
        watch: Watch | None,
    ) -> list[Outcome[Copied]]:
        """Follow one stream in this thread, several in threads."""
        from retention.core.following import act_until_signal

        names = list(names)
        if len(names) == 1:
            return self._on_each(names, follow, options, watch)

        def act(name: str, stop: Stop) -> Copied:
            return follow(self._known(name), options, stop)

        return act_until_signal(names, act, self.clock, watch)

    def _on_each(
        self,
        names: Iterable[str],
        copy: Callable[[OpenedStream, Options], Copied],
        options: Options,
        watch: Watch | None = None,
    ) -> list[Outcome[Copied]]:
        """Copy to one stream after another."""
        return act_sequentially(
            names, lambda name: copy(self._known(name), options), self.clock, watch
        )
