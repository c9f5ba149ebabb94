"""Simulations as lines of text and as rows of a frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from retention.core.units import format_size
from retention.views.wording import bounds_text, brief_instant, counted_bounds

if TYPE_CHECKING:
    from retention.core.bounds import Bounds
    from retention.core.json_object import JsonObject
    from retention.plan.growth import Growth
    from retention.plan.simulation import PassCost, SimulatedPass, SimulatedPolicy, Simulation


def simulation_text(simulation: Simulation) -> list[str]:
    """The lines of a simulation: its assumption, then each policy with its passes and its cost."""
    numbers = "exact numbers" if simulation.is_exact else "bounds from statistics"
    lines = [
        f"{simulation.subject}: {numbers}, as of {brief_instant(simulation.as_of_ns)}",
        f"  {_growth_text(simulation)}",
    ]
    for policy in simulation.policies:
        lines += _policy_lines(policy, simulation.noun)
    return lines


def simulation_rows(simulation: Simulation) -> Iterator[JsonObject]:
    """The passes of all policies, a row each: policy, instant, and the two bounds of each number."""
    for policy in simulation.policies:
        for each in policy.passes:
            yield {"policy": policy.name, **each.as_json(simulation.noun)}


def _policy_lines(policy: SimulatedPolicy, noun: str) -> Iterator[str]:
    changes = ", ".join(f"{key}: {_value(value)}" for key, value in policy.settings.items())
    yield f"{policy.name}{f' ({changes})' if changes else ''}: {'; '.join(policy.limits)}"
    for each in policy.passes:
        yield f"  at {brief_instant(each.at_ns)}: {_pass_text(each, noun)}"
        if len(each.alone) > 1:
            yield f"    each rule alone would remove {by_rule_text(each.alone)}"
    yield f"  a pass now {_cost_text(policy.cost, 'files' if noun == 'rows' else 'segments')}"


def _pass_text(each: SimulatedPass, noun: str) -> str:
    kept = (
        f"keeps {bounds_text(each.kept)} of {each.stored:,} {noun} ({sizes_text(each.kept_bytes)})"
    )
    if not each.removed.upper:
        return f"{kept}, removes none"
    return f"{kept}, removes {by_rule_text(each.by_rule)}"


def _cost_text(cost: PassCost, pieces: str) -> str:
    counts = [
        f"{verb} {bounds_text(cost.pieces[name])}"
        for name, verb in (("dropped", "drops"), ("rewritten", "rewrites"))
    ]
    size = f" ({sizes_text(cost.bytes_rewritten)})" if cost.bytes_rewritten.upper else ""
    opened = f"; planning it opens {counted_bounds(cost.files_read, 'file')}"
    return f"{' and '.join(counts)} {pieces}{size}{opened if cost.files_read.upper else ''}"


def _growth_text(simulation: Simulation) -> str:
    growth: Growth = simulation.growth
    if not growth.per_day:
        return f"it is assumed that no {simulation.noun} are stored from then on"
    mix = "" if simulation.noun == "rows" else ", on subjects in the mix of today"
    return (
        f"it is assumed that {growth.per_day:,.0f} {simulation.noun} a day are stored from then on, of "
        f"{growth.bytes_each:,.0f} bytes each{mix}"
    )


def by_rule_text(rules: Mapping[str, Bounds]) -> str:
    """The numbers that each rule removes."""
    return ", ".join(f"{bounds_text(number)} by {rule}" for rule, number in rules.items())


def sizes_text(size: Bounds) -> str:
    """The bounds of a size."""
    return " to ".join(dict.fromkeys(format_size(each) for each in (size.lower, size.upper)))


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
