"""A table in place, as a person holds it: planned, changed and changed back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from retention.api.public import Public
from retention.config.table import TableConfig
from retention.core.arguments import checked_class
from retention.engines.select import EngineName, Engines
from retention.errors import UsageError
from retention.history.kinds import TableUndone
from retention.history.record import RunRecord
from retention.tables.apply import Permissions, TableReport, apply_plan
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_table
from retention.tables.undo import undo_run

_NOTHING_ALLOWED = Permissions()


@checked_class
class Table(Public):
    """A table of another owner, whose rows the configured limits remove where they are."""

    def __init__(self, opened: OpenedTable, config: TableConfig, engine: EngineName | None) -> None:
        """Store the table; nothing is read yet."""
        self.opened = opened
        self.config = config
        self._engine = engine

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.opened.name

    def plan(self, as_of_ns: int | None = None) -> TablePlan:
        """Plan a pass; nothing is changed.

        Args:
            as_of_ns: the instant of the pass, nanoseconds since the epoch; None: now.

        Raises:
            RefusedError: nothing may be removed from the table.
            ConfigError: the configuration names a column that the table does not have, or of another type.
        """
        instant = self.opened.clock() if as_of_ns is None else as_of_ns
        with Engines(self._engine) as engines:
            setting, limit = self.config.engine, self.config.local_limit
            pick = partial(engines.pick, setting, local_limit=limit)
            return plan_table(self.opened, instant, pick)

    def apply(
        self, plan: TablePlan | None = None, permissions: Permissions = _NOTHING_ALLOWED
    ) -> TableReport:
        """Carry out a plan, or a pass of this instant, in one commit.

        Raises:
            StalePlanError: a file of the plan is gone, or others deleted rows from it.
            RetentionError: as `plan`.
        """
        return apply_plan(self.opened, plan or self.plan(), permissions)

    def undo(self, run: str) -> TableUndone:
        """Bring back exactly the rows that a pass removed.

        Raises:
            UsageError: there is no such run.
            RefusedError: it is undone already, or a file that it needs is gone.
        """
        return undo_run(self.opened, run)

    def runs(self) -> Iterator[RunRecord]:
        """The outcomes of runs on the table, newest first."""
        return self.opened.history.outcomes()

    def __repr__(self) -> str:
        return f"Table({self.name!r}: {self.opened.location})"


def unknown_table_error(name: str, names: list[str]) -> UsageError:
    """The error of a table that the configuration does not list."""
    listed = ", ".join(names) or "none"
    return UsageError(f"{name}: the configuration lists no table of that name; it lists {listed}")
