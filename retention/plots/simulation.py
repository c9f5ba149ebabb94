"""Simulations as charts: the messages that policies keep, and those that fall due by the instants ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from retention.core.bounds import Bounds
from retention.core.units import DAY
from retention.core.wording import counted
from retention.plan.simulation import SimulatedPass, Simulation
from retention.plots.charts import Chart, Curve, Curves
from retention.plots.plan import LONGEST_NAME
from retention.plots.wording import short_instant, short_name

DUE_AT = ("now", *(f"now+{days}d" for days in (1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 18, 22, 26, 30)))
"""The instants of a picture of dues."""
SEVERAL, UNCERTAIN = "by several rules", "perhaps"
"""Certain amounts of which the rule is open, and amounts that only rows would decide."""
_LONGEST_POLICY = 20


def simulation_chart(simulation: Simulation) -> Chart:
    """A simulation as a chart: the messages or rows that each policy keeps at its instants."""
    curves = tuple(
        _curve(
            short_name(policy.name, _LONGEST_POLICY),
            [(each.at_ns, each.kept) for each in policy.passes],
        )
        for policy in simulation.policies
    )
    name = short_name(simulation.subject, LONGEST_NAME)
    headline = (
        f"{name}: {simulation.noun} that {counted(len(curves), 'policy', 'policies')} would keep"
    )
    growth = simulation.growth
    grows = (
        f"{growth.per_day:,.0f} {simulation.noun} a day"
        if growth.per_day
        else f"no {simulation.noun}"
    )
    since = short_instant(simulation.as_of_ns)
    caption = f"{_exactness(curves)} It is assumed that {grows} are stored from {since} on."
    return Chart(headline, caption, (Curves(curves),) if len(curves[0].days) else ())


def due_chart(simulation: Simulation) -> Chart:
    """The first policy of a simulation as a chart: what a pass at each instant would remove, in all and by rule."""
    [policy, *_] = simulation.policies
    passes, name = policy.passes, short_name(simulation.subject, LONGEST_NAME)
    last = passes[-1]
    span = f"{(last.at_ns - simulation.as_of_ns) // DAY} days"
    if not last.removed.upper:
        headline = f"{name}: nothing falls due within {span}"
    else:
        headline = f"{name}: {_amount(last.removed)} of {last.stored:,} {simulation.noun} fall due within {span}"
    caption = (
        f"{simulation.noun.capitalize()} that a pass then would remove, if none ran before and none are stored "
        "meanwhile."
    )
    areas = due_areas(passes)
    return Chart(headline, caption, (Curves(areas, is_stacked=True),) if areas else ())


def due_areas(passes: Sequence[SimulatedPass]) -> tuple[Curve, ...]:
    """The amounts of passes, one area on another: certain ones by rule, then those that may be removed, too."""
    days = np.array([each.at_ns / DAY for each in passes])
    names = dict.fromkeys(rule for each in passes for rule in each.by_rule)
    tops = {
        rule: np.array([float(_of(each.by_rule, rule).lower) for each in passes]) for rule in names
    }
    tops[SEVERAL] = np.array([float(each.removed.lower) for each in passes]) - sum(tops.values())
    tops[UNCERTAIN] = np.array([float(each.removed.upper - each.removed.lower) for each in passes])
    areas, below = [], np.zeros(len(days))
    for name, amounts in tops.items():
        if amounts.max() > 0:
            areas.append(Curve(name, days, below, below + np.maximum(amounts, 0)))
            below = areas[-1].upper
    return tuple(areas)


def _of(by_rule: Mapping[str, Bounds], rule: str) -> Bounds:
    return by_rule.get(rule, Bounds(0, 0))


def _amount(bounds: Bounds) -> str:
    numbers = dict.fromkeys((f"{bounds.lower:,}", f"{bounds.upper:,}"))
    return " to ".join(numbers)


def _curve(name: str, points: list[tuple[int, Bounds]]) -> Curve:
    points = sorted(points, key=lambda point: point[0])
    return Curve(
        name,
        np.array([at_ns / DAY for at_ns, _ in points]),
        np.array([float(bounds.lower) for _, bounds in points]),
        np.array([float(bounds.upper) for _, bounds in points]),
    )


def _exactness(curves: Sequence[Curve]) -> str:
    """The meaning of the bands, if there are any."""
    is_exact = all((curve.lower == curve.upper).all() for curve in curves)
    return "The numbers are exact." if is_exact else "A band has the bounds that statistics give."
