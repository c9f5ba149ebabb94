"""A pass planned to be shown: with its forecast, exceeded guards and lowered limits."""

from __future__ import annotations

from dataclasses import replace

from retention.config import StreamConfig
from retention.context.context import OpenedStream
from retention.core.labels import on_stream
from retention.engines.select import Engines
from retention.plan.exceeded_guards import findings_of
from retention.plan.forecast import NOTHING_FORETOLD, Forecast, forecast_at, never_below
from retention.plan.forecasting import forecast
from retention.plan.plan import Plan
from retention.planners.afresh import cache_inventory, plan_state, remember_due
from retention.planners.cached import recalled, token_of, uncached_plan
from retention.planners.lowered_limits import lowered_limits
from retention.planners.retention import Planning
from retention.planners.topic import plan_topic_table


@on_stream
def plan_stream(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass to show it, like `plan_pass`, with its forecast, exceeded guards and lowered limits.

    Raises:
        RefusedError, DamagedError: as `plan_pass`.
    """
    plan = _plan_with_forecast(opened, as_of_ns, engines)
    guards = findings_of(opened.config.guards.rule(), plan)
    if plan.header.policy.mode == "replay":
        return replace(plan, guards=guards)

    def plan_as(config: StreamConfig) -> Plan:
        return _plan_once(replace(opened, config=config), as_of_ns, engines)

    return replace(
        plan,
        guards=guards,
        lowered=lowered_limits(opened, plan, plan_as),
    )


def _plan_once(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass over an existing stream without using its cache."""
    topic = opened.config.policy().topic
    if topic is not None:
        return plan_topic_table(opened, topic, as_of_ns).plan
    return plan_state(opened, token_of(opened), as_of_ns, engines).planning.plan


def _plan_with_forecast(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass, and forecast later ones."""
    uncached = uncached_plan(opened, as_of_ns, engines)
    if uncached is not None:
        return uncached.plan
    token = token_of(opened)
    known = recalled(opened, token, as_of_ns)
    if known is not None and known.due.forecast is not None:
        foretold = forecast_at(as_of_ns, known.due.due_ns, known.due.forecast)
        return replace(known.plan, forecast=foretold)
    fresh = plan_state(opened, token, as_of_ns, engines)
    cache_inventory(opened, token, fresh)
    foretold = _foretell(fresh.planning)
    remember_due(opened, token, fresh, foretold)
    return replace(fresh.planning.plan, forecast=foretold)


def _foretell(planning: Planning) -> Forecast:
    """Forecast due messages; the forecast is empty for a stream that depends on consumers."""
    plan = planning.plan
    if plan.header.policy.rests_on_consumers:
        return NOTHING_FORETOLD
    inventory, decided = planning.inventory, planning.decided
    ahead = forecast(inventory, plan.header.policy, plan.header.as_of_ns, decided, planning.tail)
    return never_below(ahead, plan.header.policy, plan.removed_messages, plan.removed_bytes)
