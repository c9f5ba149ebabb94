"""A table in place, as a person holds it: planned, changed and changed back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from retention.api.public import Public
from retention.config.table import TableConfig
from retention.core.arguments import checked_class
from retention.engine_port import Engine
from retention.engines.select import EngineName, Engines
from retention.errors import UsageError
from retention.history.kinds import TableUndone
from retention.history.record import RunRecord
from retention.tables.apply import Permissions, TableReport, apply_plan
from retention.tables.evidence import EvidenceSummary, summary_of
from retention.tables.explain import TableExplanation, explain_key, explain_row
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_table
from retention.tables.removed_rows import plan_statements, removed_rows
from retention.tables.undo import undo_run
from retention.tables.wanted_key import wanted_key

if TYPE_CHECKING:
    import pyarrow as pa

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
            return plan_table(self.opened, instant, self._picked(engines))

    def apply(
        self, plan: TablePlan | None = None, permissions: Permissions = _NOTHING_ALLOWED
    ) -> TableReport:
        """Carry out a plan, or a pass of this instant, in one commit.

        Raises:
            StalePlanError: a file of the plan is gone, or others deleted rows from it.
            RetentionError: as `plan`.
        """
        return apply_plan(self.opened, plan or self.plan(), permissions)

    def rows(self, plan: TablePlan | None = None) -> pa.Table:
        """The rows that a plan, or a pass of this instant, removes: file, row, limit, then time, key and order.

        Raises:
            StalePlanError: another table is there.
            RetentionError: as `plan`.
        """
        import pyarrow as pa

        return pa.concat_tables(removed_rows(plan or self.plan()))

    def sql(self, plan: TablePlan | None = None) -> list[str]:
        """The statements of Spark SQL that remove what a plan, or a pass of this instant, removes; run in that order.

        Of rows that neither time nor order tells apart, those at a count all stay.

        Raises:
            StalePlanError: another table is there.
            RetentionError: as `plan`.
        """
        return plan_statements(plan or self.plan())

    def explain(
        self,
        key: Mapping[str, object] | None = None,
        *,
        file: str | None = None,
        row: int | None = None,
        as_of_ns: int | None = None,
    ) -> TableExplanation:
        """Explain the rows of a key, or one row: which a pass removes and by which limit, and which runs removed.

        Args:
            key: the value of each column of the configured key.
            file: the file of a row, as `rows` names it.
            row: its position in the file, from 0 on.
            as_of_ns: the instant of the pass, nanoseconds since the epoch; None: now.

        Raises:
            UsageError: neither a key nor a row is named, or both; or the key has other columns or types.
            MissingMessageError: there is no such row, and no run with a record removed one.
        """
        instant = self.opened.clock() if as_of_ns is None else as_of_ns
        by_place = file is not None and row is not None
        if (key is None) != by_place or (file is None) != (row is None):
            raise UsageError("name either a key, or a row by its file and its position in it")
        with Engines(self._engine) as engines:
            pick = self._picked(engines)
            if file is not None and row is not None:
                return explain_row(self.opened, file, row, instant, pick)
            wanted = wanted_key(self.name, self.opened.policy.columns, key or {})
            return explain_key(self.opened, wanted, instant, pick)

    def evidence(self, run: str) -> EvidenceSummary | None:
        """The extent of the evidence of a run: rows, keys, and files that went unread; None if it has none."""
        return summary_of(self.opened, run)

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

    def _picked(self, engines: Engines) -> Callable[[int], Engine]:
        """The choice of the engine that reads a number of bytes."""
        setting, limit = self.config.engine, self.config.local_limit
        return partial(engines.pick, setting, local_limit=limit)

    def __repr__(self) -> str:
        return f"Table({self.name!r}: {self.opened.location})"


def unknown_table_error(name: str, names: list[str]) -> UsageError:
    """The error of a table that the configuration does not list."""
    listed = ", ".join(names) or "none"
    return UsageError(f"{name}: the configuration lists no table of that name; it lists {listed}")
