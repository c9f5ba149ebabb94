"""A table in place whose rows can be erased: opened, with its configuration and its engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from retention.api.dry_run import DryRun
from retention.api.erasing import planned_table_erasure, resumed_of_table
from retention.api.public import Public
from retention.config.table import TableConfig
from retention.core.arguments import checked_class
from retention.core.units import parse_as_of
from retention.engine_port import Engine
from retention.engines.select import EngineName, Engines
from retention.tables.erase import (
    TableErasurePlan,
    TableErasureRequest,
    erased_keys,
    table_erasure_reports,
)
from retention.tables.opened import OpenedTable
from retention.views.notebook import ShownErasure

if TYPE_CHECKING:
    from retention.api.repairs import Instant


@checked_class
class ErasableTable(Public):
    """A table of another owner, of which rows can be erased."""

    def __init__(self, opened: OpenedTable, config: TableConfig, engine: EngineName | None) -> None:
        """Store the table; nothing is read yet."""
        self.opened = opened
        self.config = config
        self._engine = engine

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.opened.name

    def erase(
        self,
        keys: Mapping[str, object] | Iterable[Mapping[str, object]],
        *,
        reason: str,
        by: Instant = None,
    ) -> DryRun[TableErasurePlan, ShownErasure]:
        """Take rows out of the table and of our own records, so that nobody restores them; it cannot be undone.

        Older versions are the owner's: the report lists what is left of them, and the commands that remove it.

        Args:
            keys: the values of rows by column, of one key or of several.
            reason: a text of which a keyed hash is kept.
            by: the instant by which it has to be done; None: as soon as possible.

        Returns:
            The planned erasure; `apply()` carries it out.

        Raises:
            RefusedError: a legal hold covers a row, or the table is a directory without a log.
            UsageError: the table has no such column, or a value is none of its type.
        """
        named = [keys] if isinstance(keys, Mapping) else list(keys)
        by_ns = None if by is None else self.instant(by)
        wanted = TableErasureRequest(erased_keys(self.opened, named), reason, by_ns)
        return planned_table_erasure(self.opened, self._engine, self._picking, wanted)

    def erasures(self) -> list[ShownErasure]:
        """The erasures of the table, oldest first, finished or not."""
        return [ShownErasure(**vars(report)) for report in table_erasure_reports(self.opened)]

    def resume_erasures(self) -> list[ShownErasure]:
        """Go on with the unfinished erasures of the table; their reports."""
        return resumed_of_table(self.opened, self._engine, self._picking)

    def instant(self, as_of: Instant) -> int:
        """An instant in nanoseconds since the epoch; None: the clock's."""
        now_ns = self.opened.clock()
        return now_ns if as_of is None else parse_as_of(as_of, now_ns)

    def _picking(self, engines: Engines) -> Callable[[int], Engine]:
        return partial(engines.pick, self.config.engine, local_limit=self.config.local_limit)
