"""Passes over many streams within a budget: the most overdue first, and the rest reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from retention.api.warehouse import Warehouse
from retention.apply.budget import Budget
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.core.outcomes import Outcome, Watch, act_sequentially, ask_concurrently
from retention.engines.select import Engines
from retention.history.report import RunReport
from retention.inspect.lag import NO_LAG, Lag, lag_of, urgency
from retention.storage import files

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
