"""Selection of the streams of a warehouse: those that exist, and those that a call selects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from retention.config import Config
from retention.config.discovery import listed_names, refuse_missing
from retention.config.selection import is_pattern, select_streams
from retention.core.arguments import checked_class
from retention.core.subjects import TABLES, name_of_path, path_name
from retention.errors import UsageError
from retention.storage import files
from retention.storage.parallel import in_threads
from retention.stores.sidecar.owner import other_owner


@checked_class
class StreamSelection(ABC):
    """The part of a warehouse that selects its streams by name, pattern and tag."""

    config: Config
    clock: Callable[[], int]

    @property
    def location(self) -> str:
        """The warehouse's directory or object-store prefix."""
        return self.config.warehouse

    def streams(self) -> list[str]:
        """The names of all streams, those of the configuration first."""
        configured = {stream.name: None for stream in self.config.streams}
        on_disk = []
        for directory in files.directories(files.join(self.location, "streams")):
            with suppress(UsageError):
                if directory != TABLES:
                    on_disk.append(name_of_path(directory))
        return [*configured, *(name for name in on_disk if name not in configured)]

    def own_streams(self) -> Iterator[str]:
        """The names of the streams to process: all but those that another configuration owns."""
        yield from (stream.name for stream in self.config.streams)
        yield from self.ownerless()

    def ownerless(self) -> list[str]:
        """The names of stored streams, including dropped ones, that neither this configuration nor another lists."""
        listed = {stream.name for stream in self.config.streams}
        names = [name for name in self.streams() if name not in listed]
        roots = [files.join(self.location, "streams", path_name(name)) for name in names]
        ask = partial(other_owner, current=self.config.owner, now_ns=self.clock())
        owners = in_threads(ask, roots, files.streams_at_once(self.location))
        return [name for name, owner in zip(names, owners, strict=True) if owner is None]

    def unlisted(self, names: Iterable[str] = (), tags: Iterable[str] = ()) -> list[str]:
        """The names of the streams that have a table, and that neither this configuration nor another one lists.

        Without a configuration no stream is unlisted.

        Args:
            names: if these are plain names, only streams among them.
            tags: with tags or patterns, all streams are examined, since an unlisted stream has no tag.
        """
        only = set(names)
        if self.config.file is None:
            return []
        if tags or any(map(is_pattern, only)):
            only = set()
        return [
            name
            for name in self.ownerless()
            if (not only or name in only) and self._may_hold_table(name)
        ]

    def reclaimable(self) -> Iterator[str]:
        """The names of the streams for a reclaim of dead files; unlisted streams have no configured grace."""
        kept = set(self.unlisted())
        yield from (name for name in self.own_streams() if name not in kept)

    def chosen(
        self,
        names: Iterable[str] = (),
        tags: Iterable[str] = (),
        among: Iterable[str] | None = None,
    ) -> list[str]:
        """The streams to act on by name, pattern (`ORDERS_*`) and tag: `config.selection.select_streams`.

        Patterns, tags and an empty selection apply to `among`; by default to `own_streams`.

        Raises:
            UsageError: there is no warehouse at this location, or a pattern or tag matches nothing. A missing named
                stream is reported by its own outcome.
        """
        refuse_missing(self.config)
        meant = self.own_streams() if among is None else among
        return select_streams(self.config, self.streams, names, tags, meant)

    def _named(self, names: Iterable[str] | None, among: Iterable[str] | None = None) -> list[str]:
        """The streams that a call names, as `chosen`: all for None, none for a list without names."""
        given = None if names is None else list(names)
        return [] if given == [] else self.chosen(given or (), among=among)

    @abstractmethod
    def _may_hold_table(self, name: str) -> bool:
        """Whether a stream has a table that is not dropped, or one that cannot be read."""

    def chosen_unlisted(self, names: Iterable[str] = ()) -> list[str]:
        """The streams that no configuration lists, including dropped ones, by name and pattern; all, if none is given.

        Raises:
            UsageError: as `chosen`; or a named stream is listed, or another configuration owns it.
        """
        ownerless = self.ownerless()
        chosen = self.chosen(names, among=ownerless)
        others = [name for name in chosen if name not in ownerless and self.has(name)]
        if others:
            raise UsageError(
                f"{listed_names(others)}: a configuration lists this stream; leave out --unlisted to work on it"
            )
        return chosen

    def tables(self) -> list[str]:
        """The names of the tables in place that the configuration lists."""
        return [table.name for table in self.config.tables]

    def chosen_with_tables(
        self,
        names: Iterable[str] = (),
        tags: Iterable[str] = (),
        among: Iterable[str] | None = None,
    ) -> tuple[list[str], list[str]]:
        """The streams, and the tables in place, to act on by name, pattern and tag; as `chosen`.

        Raises:
            UsageError: as `chosen`.
        """
        refuse_missing(self.config)
        tables = self.tables()
        meant = [*(self.own_streams() if among is None else among), *tables]
        chosen = select_streams(
            self.config, lambda: [*self.streams(), *tables], names, tags, meant, tables
        )
        return (
            [name for name in chosen if name not in tables],
            [name for name in chosen if name in tables],
        )

    def has(self, name: str) -> bool:
        """Whether the configuration names such a stream or topic, or it was written to."""
        return self.config.stream(name) is not None or name in self.streams()

    def compacted(self) -> list[str]:
        """The names of the streams with `compact` in their configuration."""
        return [stream.name for stream in self.config.streams if stream.compact is not None]

    def mirrored(self) -> list[str]:
        """The names of the streams with a mirror or sources in their configuration."""
        listed = self.config.streams
        return [stream.name for stream in listed if stream.mirror or stream.sources]

    def topics(self) -> list[str]:
        """The names of the topics that the configuration lists."""
        return [stream.name for stream in self.config.streams if stream.topic is not None]
