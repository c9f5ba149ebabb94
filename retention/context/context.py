"""A stream ready for work: its name, configuration, table and clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from retention.config import StreamConfig
from retention.config.owner import Owner
from retention.ports import TableStore, UnopenedTable
from retention.stores import format_of
from retention.stores.layout import Layout

if TYPE_CHECKING:
    from retention.context.digest_index import DigestIndex
    from retention.context.message_ids import MessageIds
    from retention.context.own_end import OwnEnd
    from retention.dialects.dialect import Dialect
    from retention.stores.table_format import TableFormat


@dataclass(frozen=True)
class OpenedStream:
    """The parts of a stream that every operation on it starts from."""

    name: str
    config: StreamConfig
    table: UnopenedTable
    root: str
    """`<warehouse>/streams/<name>`, a local path or an object-store URI."""
    warehouse: str
    clock: Callable[[], int]
    """The wall clock, nanoseconds since the epoch."""
    since_ns: int
    """The instant at which work on it began: a later instant was read from the clock, not chosen."""
    wait_s: float = 0.0
    """The time to wait for another maintainer to end, in seconds."""
    owner: Owner | None = None
    """The configuration that opened it; None: no file defines how streams are kept."""
    is_listed: bool = True
    """Whether that configuration lists it; False: it keeps everything."""
    ledger: str | None = None
    """The location of the ledger; None: there is none."""

    @property
    def store(self) -> TableStore:
        """Its table, to read and write."""
        return self.table.store()

    @cached_property
    def dialect(self) -> Dialect:
        """The rules by which its server accepts messages: JetStream's for a stream, Iggy's for a topic."""
        from retention.dialects.choice import dialect_of

        return dialect_of(self.config)

    @cached_property
    def table_format(self) -> TableFormat:
        """The format of its table."""
        return format_of(self.name, self.config.format)

    @cached_property
    def digests(self) -> DigestIndex:
        """The subject digests of its files, as far as they were read."""
        from retention.context.digest_index import DigestIndex

        return DigestIndex()

    @cached_property
    def message_ids(self) -> MessageIds:
        """The message ids in its recent files, as far as they were read."""
        from retention.context.message_ids import MessageIds

        return MessageIds()

    @cached_property
    def own_end(self) -> OwnEnd:
        """The end of its log, as far as commits through this object tell it."""
        from retention.context.own_end import OwnEnd

        return OwnEnd()

    @property
    def layout(self) -> Layout:
        """The locations of its files."""
        return Layout(self.root, self.name, self.config.partitions, self.config.lowest_seq)


def has_table(opened: OpenedStream) -> bool:
    """Whether a stream has a table, even a dropped one with files that may still exist.

    Raises:
        DamagedError: the table existed and is missing.
    """
    return opened.table.exists() or opened.table.lifetime().dropped_ns is not None
