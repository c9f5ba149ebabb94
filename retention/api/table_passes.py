"""Operations on several tables in place of a warehouse at one instant, and on the runs of any of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from retention.api.selection import StreamSelection
from retention.core.arguments import checked_class
from retention.core.outcomes import Outcome, Watch, act_concurrently, act_sequentially
from retention.engines.select import EngineName, Engines
from retention.storage import files
from retention.views.outcomes import Outcomes

if TYPE_CHECKING:
    from retention.api.dry_run import DryRun
    from retention.api.repairs import Instant
    from retention.api.table import Table
    from retention.apply.guards import Guards
    from retention.tables.bounded_files import TableEstimate
    from retention.tables.opened import OpenedTable
    from retention.tables.plan import TablePlan
    from retention.tables.reclaim import TableReclaim
    from retention.tables.report import TableReport
    from retention.tables.state import TableState


@checked_class
class TablePasses(StreamSelection):
    """The part of a warehouse that acts on its tables in place."""

    clock: Callable[[], int]
    engine: EngineName | None

    @abstractmethod
    def table(self, name: str) -> Table:
        """A table in place that the configuration lists."""

    @abstractmethod
    def instant(self, as_of: Instant) -> int:
        """An instant in nanoseconds since the epoch; None: the clock's."""

    def plan_tables(
        self, names: Iterable[str] | None = None, as_of: Instant = None, watch: Watch | None = None
    ) -> list[Outcome[TablePlan]]:
        """Plan one pass over tables (all, if `names` is None), all of them at one instant."""
        instant = self.instant(as_of)
        with Engines(self.engine) as engines:

            def act(name: str) -> TablePlan:
                return self.table(name).plan_on(engines, instant)

            return Outcomes(act_sequentially(self._named_tables(names), act, self.clock, watch))

    def apply_tables(
        self,
        names: Iterable[str] | None = None,
        as_of: Instant = None,
        guards: Guards | None = None,
        watch: Watch | None = None,
    ) -> list[Outcome[TableReport]]:
        """Plan and apply one pass over tables (all, if `names` is None), all of them at one instant."""
        from retention.apply.guards import Guards

        instant = self.instant(as_of)
        with Engines(self.engine) as engines:

            def act(name: str) -> TableReport:
                return self.table(name).apply_on(engines, instant, guards or Guards())

            return Outcomes(act_sequentially(self._named_tables(names), act, self.clock, watch))

    def apply_table_plans(
        self, plans: Iterable[TablePlan], guards: Guards | None = None, watch: Watch | None = None
    ) -> list[Outcome[TableReport]]:
        """Apply saved plans of tables, unchanged."""
        from retention.apply.guards import Guards
        from retention.tables.apply import apply_plan

        by_name = {plan.table: plan for plan in plans}

        def act(name: str) -> TableReport:
            return apply_plan(self.table(name).opened, by_name[name], guards or Guards())

        return Outcomes(act_sequentially(by_name, act, self.clock, watch))

    def estimate_tables(
        self, names: Iterable[str] | None = None, as_of: Instant = None
    ) -> list[Outcome[TableEstimate]]:
        """Bound what one pass over tables (all, if `names` is None) would remove, by their logs alone."""
        from retention.tables.state import estimate_table

        instant = self.instant(as_of)

        def ask(name: str) -> TableEstimate:
            return estimate_table(self.table(name).opened, instant)

        return self._at_once(names, ask)

    def table_states(
        self, names: Iterable[str] | None = None, as_of: Instant = None
    ) -> list[Outcome[TableState]]:
        """The contents of tables (all, if `names` is None), and their lag behind their limits."""
        from retention.tables.state import state_of_table

        instant = self.instant(as_of)

        def ask(name: str) -> TableState:
            return state_of_table(self.table(name).opened, instant)

        return self._at_once(names, ask)

    def reclaim_tables(
        self, names: Iterable[str] | None = None, watch: Watch | None = None
    ) -> DryRun[list[Outcome[TableReclaim]], list[Outcome[TableReclaim]]]:
        """Delete files that passes over tables (all, if `names` is None) removed, after their grace; not undoable.

        Returns:
            The files that would be deleted from each table, found on first use; `apply()` deletes them.
        """
        from retention.api.dry_run import DryRun, lines_of_outcomes
        from retention.tables.reclaim import plan_table_reclaim, reclaim_table
        from retention.views.reclaim import table_reclaim_text

        chosen = self._named_tables(names)

        def each(act: Callable[[OpenedTable], TableReclaim]) -> list[Outcome[TableReclaim]]:
            done = act_sequentially(
                chosen, lambda name: act(self.table(name).opened), self.clock, watch
            )
            return Outcomes(done)

        return DryRun(
            lambda: each(plan_table_reclaim),
            lambda: each(reclaim_table),
            lines_of_outcomes(table_reclaim_text),
        )

    def table_of_run(self, run: str) -> Table | None:
        """The table of a run; None: it is a run of no table, or there is no such run."""
        for name in self.tables():
            table = self.table(name)
            history = table.opened.history
            if history.begun(run) is not None or history.done(run) is not None:
                return table
        return None

    def _at_once(
        self, names: Iterable[str] | None, ask: Callable[[str], Any]
    ) -> list[Outcome[Any]]:
        at_a_time = files.streams_at_once(self.location)
        return Outcomes(act_concurrently(self._named_tables(names), ask, self.clock, at_a_time))

    def _named_tables(self, names: Iterable[str] | None) -> list[str]:
        return self.tables() if names is None else list(names)
