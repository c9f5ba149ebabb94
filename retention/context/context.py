"""A stream made ready for work: its name, configuration, table and clock, held together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from retention.config import StreamConfig
from retention.config.owner import Owner
from retention.dialects.choice import dialect_of
from retention.dialects.dialect import Dialect
from retention.ports import Store


@dataclass(frozen=True)
class OpenedStream:
    """The parts of a stream from which every act on it starts."""

    name: str
    config: StreamConfig
    store: Store
    root: str
    """`<warehouse>/streams/<name>`, a local path or an object-store URI."""
    warehouse: str
    clock: Callable[[], int]
    """The wall clock, nanoseconds since the epoch."""
    since_ns: int
    """The instant at which whoever works on it began: a later instant was read from the clock, not chosen."""
    wait_s: float = 0.0
    """The time to wait for another maintainer to end, in seconds."""
    owner: Owner | None = None
    """The configuration by which it was opened; None: no file says how streams are kept."""
    is_listed: bool = True
    """Whether that configuration lists it; else it keeps everything."""

    @cached_property
    def dialect(self) -> Dialect:
        """The rules by which its server takes messages: a stream's are JetStream's, a topic's Iggy's."""
        return dialect_of(self.config)


def has_table(opened: OpenedStream) -> bool:
    """Whether a stream has a table, be it dropped: then its files may still be there.

    Raises:
        DamagedError: the table is not there, and was.
    """
    return opened.store.exists() or opened.store.dropped_ns() is not None
