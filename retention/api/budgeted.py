"""Passes over many streams within a budget: the most overdue first, and the rest reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retention.api.warehouse import Warehouse
from retention.apply.budget import Budget
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.core.outcomes import Outcome, Watch, act_sequentially, ask_concurrently
from retention.engines.select import Engines
from retention.history.report import RunReport
from retention.inspect.lag import NO_LAG, Lag, lag_of, urgency
from retention.storage import files

if TYPE_CHECKING:
    from retention.tables.report import TableReport


@dataclass(frozen=True)
class Spending:
    """A budget, and what a run has spent of it."""

    budget: Budget
    since_ns: int
    """The start of the run."""
    bytes: int = 0
    """The bytes read and written."""

    @classmethod
    def after(
        cls, budget: Budget, since_ns: int, outcomes: Iterable[Outcome[RunReport]]
    ) -> Spending:
        """The spending of a run after its passes over streams."""
        reports = [outcome.value for outcome in outcomes if outcome.value is not None]
        return cls(budget, since_ns, sum(each.bytes_read + each.bytes_written for each in reports))


Behind = dict[str, Outcome[Lag | None]]


def apply_within(
    warehouse: Warehouse,
    names: Iterable[str],
    as_of_ns: int,
    budget: Budget,
    guards: Guards | None = None,
    watch: Watch | None = None,
) -> list[Outcome[RunReport]]:
    """Plan and apply one pass over streams, the most overdue first, until the budget is spent.

    A stream of unknown lag comes first, because its pass reports the reason; one with nothing known to be due comes
    last. The pass in progress when the budget is spent is finished.

    Returns:
        An outcome for each stream, in order of execution; `left` is set in the report of a stream not processed.
    """
    started = warehouse.clock()
    behind = _lags(warehouse, names, as_of_ns)
    order = sorted(behind, key=lambda name: urgency(behind[name].value))
    done: list[RunReport] = []
    with Engines(warehouse.engine) as engines:

        def act(name: str) -> RunReport:
            size = sum(report.bytes_read + report.bytes_written for report in done)
            spent = budget.spent(warehouse.clock() - started, size)
            if spent is not None:
                return _left(name, as_of_ns, spent, behind[name].value or NO_LAG)
            opened = warehouse.log(name).opened
            done.append(apply_now(opened, as_of_ns, engines, guards or Guards()))
            return done[-1]

        return act_sequentially(order, act, warehouse.clock, watch)


def apply_tables_within(
    warehouse: Warehouse,
    names: Iterable[str],
    as_of_ns: int,
    spending: Spending,
    guards: Guards | None = None,
    watch: Watch | None = None,
) -> list[Outcome[TableReport]]:
    """Plan and apply one pass over tables, after those over streams, until the budget is spent.

    Returns:
        An outcome for each table, in the order of the names; `left` is set in the report of one not processed.
    """
    from retention.tables.permits import nothing_done

    size = spending.bytes
    with Engines(warehouse.engine) as engines:

        def act(name: str) -> TableReport:
            nonlocal size
            table = warehouse.table(name)
            spent = spending.budget.spent(warehouse.clock() - spending.since_ns, size)
            if spent is not None:
                left = nothing_done(table.opened, as_of_ns)
                return replace(left, left={"budget": spent})
            report = table.apply_on(engines, as_of_ns, guards or Guards())
            size += report.plan.bytes_read + report.bytes_written
            return report

        return act_sequentially(names, act, warehouse.clock, watch)


def _lags(warehouse: Warehouse, names: Iterable[str], as_of_ns: int) -> Behind:
    outcomes = ask_concurrently(
        names,
        lambda name: lag_of(warehouse.log(name).opened, as_of_ns),
        warehouse.clock,
        files.read_parallelism(warehouse.location),
        "measuring lags",
    )
    return {outcome.stream: outcome for outcome in outcomes}


def _left(name: str, as_of_ns: int, spent: str, lag: Lag) -> RunReport:
    """The report of a stream that the budget left unprocessed: nothing was removed."""
    left: dict[str, object] = {
        "budget": spent,
        "since_ns": lag.since_ns,
        "messages_at_least": lag.messages,
        "bytes_at_least": lag.bytes,
    }
    return replace(RunReport.of_nothing(name, as_of_ns), left=left)
