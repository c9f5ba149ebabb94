"""Passes over many streams and tables within a budget: the most overdue first, and the rest reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from retention.api.warehouse import Warehouse
from retention.apply.budget import Budget
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.core.outcomes import Outcome, Watch, act_sequentially, ask_concurrently
from retention.engines.select import Engines
from retention.history.report import RunReport
from retention.storage import files

if TYPE_CHECKING:
    from retention.inspect.lag import Lag
    from retention.tables.report import TableReport


@dataclass(frozen=True)
class Applied:
    """The outcomes of passes over streams and tables, each in order of execution."""

    streams: list[Outcome[RunReport]]
    tables: list[Outcome[TableReport]]

    @property
    def bytes(self) -> int:
        """The bytes that they read and wrote."""
        every: list[Outcome[Any]] = [*self.streams, *self.tables]
        return sum(bytes_of(each.value) for each in every if each.value is not None)


def bytes_of(report: RunReport | TableReport) -> int:
    """The bytes that a pass read and wrote."""
    of_plan = report if isinstance(report, RunReport) else report.plan
    return of_plan.bytes_read + report.bytes_written


def apply_within(
    warehouse: Warehouse,
    names: Iterable[str],
    as_of_ns: int,
    budget: Budget,
    guards: Guards | None = None,
    watch: Watch | None = None,
) -> Applied:
    """Plan and apply one pass over streams and tables, the most overdue first, until the budget is spent.

    One of unknown lag comes first, because its pass reports the reason; one with nothing known to be due comes last.
    The pass in progress when the budget is spent is finished.

    Returns:
        An outcome for each; `left` is set in the report of a stream or table not processed.
    """
    from retention.inspect.lag import NO_LAG, urgency

    started, tables, size = warehouse.clock(), {*warehouse.tables()}, 0
    behind = _lags(warehouse, names, as_of_ns)
    order = sorted(behind, key=lambda name: urgency(behind[name].value))
    with Engines(warehouse.engine) as engines:

        def act(name: str) -> RunReport | TableReport:
            nonlocal size
            spent = budget.spent(warehouse.clock() - started, size)
            if spent is not None:
                lag = behind[name].value or NO_LAG
                leave = _left_table if name in tables else _left
                return leave(warehouse, name, as_of_ns, spent, lag)
            report: RunReport | TableReport
            if name in tables:
                report = warehouse.table(name).apply_on(engines, as_of_ns, guards or Guards())
            else:
                opened = warehouse.log(name).opened
                report = apply_now(opened, as_of_ns, engines, guards or Guards())
            size += bytes_of(report)
            return report

        done = act_sequentially(order, act, warehouse.clock, watch)
    of_streams = [each for each in done if each.stream not in tables]
    of_tables = [each for each in done if each.stream in tables]
    return Applied(
        cast("list[Outcome[RunReport]]", of_streams), cast("list[Outcome[TableReport]]", of_tables)
    )


def _lags(
    warehouse: Warehouse, names: Iterable[str], as_of_ns: int
) -> dict[str, Outcome[Lag | None]]:
    from retention.inspect.lag import lag_of, table_lag

    tables = {*warehouse.tables()}

    def ask(name: str) -> Lag | None:
        if name in tables:
            return table_lag(warehouse.table(name).state(as_of_ns))
        return lag_of(warehouse.log(name).opened, as_of_ns)

    at_a_time = files.streams_at_once(warehouse.location)
    outcomes = ask_concurrently(names, ask, warehouse.clock, at_a_time, "measuring lags")
    return {outcome.stream: outcome for outcome in outcomes}


def _left(_: Warehouse, name: str, as_of_ns: int, spent: str, lag: Lag) -> RunReport:
    """The report of a stream that the budget left unprocessed: nothing was removed."""
    left: dict[str, object] = {
        "budget": spent,
        "since_ns": lag.since_ns,
        "messages_at_least": lag.messages,
        "bytes_at_least": lag.bytes,
    }
    return replace(RunReport.of_nothing(name, as_of_ns), left=left)


def _left_table(
    warehouse: Warehouse, name: str, as_of_ns: int, spent: str, lag: Lag
) -> TableReport:
    """The report of a table that the budget left unprocessed, as `_left`."""
    from retention.tables.permits import nothing_done

    left = {"budget": spent, "since_ns": lag.since_ns, "rows_at_least": lag.messages}
    return replace(nothing_done(warehouse.table(name).opened, as_of_ns), left=left)
