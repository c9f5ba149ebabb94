"""The table of a stream as far as names in its directory tell of it: whether there is one, and its version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from retention.core.counters import Counters
from retention.errors import UsageError
from retention.ports import Lifetime, VersionToken
from retention.stores.checks.presence import refuse_lost
from retention.stores.layout import FormatRecord, Layout, StoreSettings, check_format


class TableLog(Protocol):
    """The log of a table, which may not exist. Implementations: `stores.delta.table_log`, `stores.parquet.store`."""

    def exists(self) -> bool:
        """Whether the log has a first entry."""
        ...

    def version_token(self) -> VersionToken | None:
        """The token of the newest version; None if only opening the table tells."""
        ...

    def begin(self, now_ms: int) -> None:
        """Write the first entry."""
        ...

    def standing(self) -> tuple[bool, Counters]:
        """Whether the table has any file, and its counters; also for a table that `Store.snapshot` refuses.

        Raises:
            UsageError: there is no table.
        """
        ...


class LoggedTable:
    """Implements `retention.ports.UnopenedTable`.

    Args:
        layout: the stream's layout.
        settings: its storage settings.
        log: its table's log.
    """

    def __init__(self, layout: Layout, settings: StoreSettings, log: TableLog) -> None:
        self._layout = layout
        self._settings = settings
        self._table_log = log

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._layout.stream

    def exists(self) -> bool:
        """Whether the table exists.

        Raises:
            DamagedError: the table existed once and is missing.
        """
        record = self._check_format()
        if self._table_log.exists():
            return self._lifetime(record).dropped_ns is None
        refuse_lost(self._layout, record, self._table_log.exists)
        return False

    def lifetime(self) -> Lifetime:
        """The present table among those that the stream has had; opened only if the stream was ever dropped."""
        return self._lifetime(self._check_format())

    def _lifetime(self, record: FormatRecord | None) -> Lifetime:
        if record is None or not record.was_dropped or not self._table_log.exists():
            return Lifetime()
        with self._opening():
            has_files, counters = self._table_log.standing()
        # Another writer may have put files into a dropped table.
        dropped_ns = None if has_files else counters.dropped_ns or None
        return Lifetime(counters.generation, dropped_ns)

    def version_token(self) -> VersionToken | None:
        """The newest version's token; None if a token costs as much as opening the table."""
        return self._table_log.version_token()

    def _check_format(self) -> FormatRecord | None:
        return check_format(self._layout, self._settings.format)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Wrap the opening of the table: refuse a missing table as lost if it existed once."""
        record = self._check_format()
        try:
            yield
        except UsageError:
            refuse_lost(self._layout, record, self._table_log.exists)
            raise
