"""Plans as charts: the messages of each day or segment that are kept, and those that each rule removes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.core.units import DAY
from retention.core.wording import counted
from retention.plan.plan import Plan
from retention.plots.charts import Chart, Numbers, Panel, Rows, Series, Stack
from retention.plots.palette import KEPT
from retention.plots.wording import short_instant, short_name
from retention.schemas.rule_names import RULE_NAMES
from retention.tables.plan import TablePlan

MOST_COLUMNS = 60
_FEWEST_DAYS = 3
_MOST_IN_ONE = 0.95
"""The share of all messages in one column from which days say little: a clock that jumped stretches them."""
LONGEST_NAME = 40
_COLUMNS = ("partition", "segment", "first_ts_ns", "last_ts_ns", "max_ts_ns", "messages")


@dataclass(frozen=True)
class Fates:
    """The messages of files by their fates: one row a file, in order of partition and segment."""

    partition: Array
    segment: Array
    first_ns: Array
    last_ns: Array
    by_fate: Mapping[str, Array]
    """`kept` or a rule → messages of each file; int64."""


def plan_chart(plan: Plan, files: pa.Table) -> Chart:
    """A plan as a chart.

    Args:
        plan: the plan.
        files: every file of the stream that it was made from, with columns of `CAUSE_FILES`.
    """
    fates = fates_of(plan, files)
    stored = sum(int(counts.sum()) for counts in fates.by_fate.values())
    name = short_name(plan.header.stream, LONGEST_NAME)
    if not stored:
        return Chart(f"{name}: no messages", "There is nothing to keep or to remove.")
    verb = "a pass removes" if plan.header.request is None else "the request removes"
    amount = f"{plan.removed_messages:,}" if plan.removed_messages else "none"
    headline = f"{name}: {verb} {amount} of {counted(stored, 'message')}"
    stack, caption = columns_of(fates)
    return Chart(headline, f"{caption} As of {short_instant(plan.header.as_of_ns)}.", (stack,))


def fates_of(plan: Plan, files: pa.Table) -> Fates:
    """The fates of the messages of all files that a plan was made from."""
    touched = plan.actions.files_with_rules
    others = files.filter(
        pc.invert(pc.is_in(files["path"], value_set=touched["path"].combine_chunks()))
    )
    both = pa.concat_tables([touched.select(_COLUMNS), others.select(_COLUMNS)])
    order = pc.sort_indices(both, [("partition", "ascending"), ("segment", "ascending")]).to_numpy()
    rest = np.zeros(others.num_rows, np.int64)

    def sorted_of(numbers: Array) -> Array:
        return numbers[order]

    columns = {name: sorted_of(both[name].to_numpy()) for name in _COLUMNS}
    removed = np.append(touched["removed_messages"].to_numpy(), rest)
    by_fate = {KEPT: columns["messages"] - sorted_of(removed)}
    for rule in RULE_NAMES:
        counts = np.append(touched[f"by_{rule}"].to_numpy(), rest)
        if counts.any():
            by_fate[rule] = sorted_of(counts)
    return Fates(
        columns["partition"],
        columns["segment"],
        np.minimum(columns["first_ts_ns"], columns["last_ts_ns"]),
        columns["max_ts_ns"],
        by_fate,
    )


def columns_of(fates: Fates) -> tuple[Stack, str]:
    """The fates by day, or by segment where days say little; and what the columns are, in a sentence."""
    days = (int(fates.last_ns.max()) - int(fates.first_ns.min())) / DAY
    if days >= _FEWEST_DAYS:
        stack, width = by_time(fates)
        total = np.sum([each.values for each in stack.series], axis=0)
        if total.max() < _MOST_IN_ONE * total.sum():
            unit = "day" if width == 1 else f"{width} days"
            return stack, (
                f"Messages per {unit}; those of a file that covers several days are spread evenly over its time."
            )
    stack, width = by_segment(fates)
    unit = "segment" if width == 1 else f"{width:,} segments"
    return stack, f"Messages per {unit}, the oldest first."


def by_time(fates: Fates) -> tuple[Stack, int]:
    """The fates in columns of whole days, UTC, and the days of each; messages spread over the time of their file."""
    first, last = fates.first_ns.min() / DAY, fates.last_ns.max() / DAY
    width = max(1, int(np.ceil((last - first) / MOST_COLUMNS)))
    begin = np.floor(first)
    edges = begin + width * np.arange(np.floor((last - begin) / width) + 2, dtype=np.float64)
    starts, ends = fates.first_ns / DAY, fates.last_ns / DAY
    lengths = np.maximum(ends - starts, 1 / DAY)
    amounts = np.stack([*fates.by_fate.values()], axis=1).astype(np.float64)
    # One column at a time: a stream has up to a million files.
    until = [np.clip((edge - starts) / lengths, 0, 1) @ amounts for edge in edges[1:-1]]
    below = np.stack([np.zeros(amounts.shape[1]), *until, amounts.sum(axis=0)])
    return Stack(edges, _series(fates, np.diff(below, axis=0))), width


def by_segment(fates: Fates) -> tuple[Stack, int]:
    """The fates in columns of one or several segments, and the segments of each."""
    begins = np.append(True, (np.diff(fates.partition) != 0) | (np.diff(fates.segment) != 0))
    numbers = np.cumsum(begins) - 1
    width = max(1, -(-(int(numbers[-1]) + 1) // MOST_COLUMNS))
    amounts = np.stack([*fates.by_fate.values()], axis=1).astype(np.float64)
    columns = np.zeros((int(numbers[-1]) // width + 1, amounts.shape[1]))
    np.add.at(columns, numbers // width, amounts)
    edges = np.arange(len(columns) + 1, dtype=np.float64) * width
    return Stack(edges, _series(fates, columns), is_time=False), width


def table_plan_chart(plan: TablePlan) -> Chart:
    """A plan of a table in place as a chart: the rows kept, and those that each limit removes."""
    name = short_name(plan.table, LONGEST_NAME)
    kept = plan.rows - plan.removed_rows
    fates = {KEPT: kept, **plan.by_limit}
    amount = f"{plan.removed_rows:,}" if plan.removed_rows else "none"
    headline = f"{name}: a pass removes {amount} of {counted(plan.rows, 'row')}"
    series = tuple(
        Series(fate, np.where(np.arange(len(fates)) == at, float(rows), 0.0))
        for at, (fate, rows) in enumerate(fates.items())
    )
    panel = Panel("", series, lambda rows: f"{rows:,}")
    return Chart(headline, f"As of {short_instant(plan.as_of_ns)}.", (Rows((*fates,), (panel,)),))


def _series(fates: Fates, columns: Numbers) -> tuple[Series, ...]:
    return tuple(Series(name, columns[:, at]) for at, name in enumerate(fates.by_fate))
