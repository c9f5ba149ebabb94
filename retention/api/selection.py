"""Selection of the streams of a warehouse: which there are, and which of them are meant."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from contextlib import suppress

from retention.config import Config
from retention.config.discovery import refuse_missing
from retention.config.selection import select_streams
from retention.core.arguments import checked_class
from retention.core.subjects import TABLES, name_of_path
from retention.errors import UsageError
from retention.storage import files


@checked_class
class Selection(ABC):
    """The part of a warehouse that knows its streams by name, pattern and tag."""

    config: Config

    @property
    def location(self) -> str:
        """The warehouse's directory or object-store prefix."""
        return self.config.warehouse

    def streams(self) -> list[str]:
        """The names of all streams, those of the configuration first."""
        configured = [stream.name for stream in self.config.streams]
        on_disk = []
        for directory in files.directories(files.join(self.location, "streams")):
            with suppress(UsageError):
                if directory != TABLES:
                    on_disk.append(name_of_path(directory))
        return [*configured, *(name for name in on_disk if name not in set(configured))]

    def chosen(
        self,
        names: Iterable[str] = (),
        tags: Iterable[str] = (),
        among: Iterable[str] | None = None,
    ) -> list[str]:
        """The streams to act on by name, pattern (`ORDERS_*`) and tag: `config.selection.select_streams`.

        Raises:
            UsageError: there is no warehouse at this place, or a pattern or tag matches nothing; whether a stream that
                is named is there, its own outcome says.
        """
        refuse_missing(self.config)
        return select_streams(self.config, self.streams, names, tags, among)

    def has(self, name: str) -> bool:
        """Whether the configuration names such a stream or topic, or something was written to it."""
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
