from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retention.core.units import DAY
from retention.errors import StalePlanError
from retention.plots.plan import MOST_COLUMNS, Fates, by_segment, by_time, columns_of, plan_chart
from tests.support.sandboxes import NOW, ORDERS, lines, opened


def fates(*spans: tuple[float, float], kept: int = 12, max_age: int = 4) -> Fates:
    """A file for each span of days, each a segment, with so many messages kept and removed."""
    begins, ends = (np.array([int(span[at] * DAY) for span in spans]) for at in (0, 1))
    rows = np.ones(len(spans), np.int64)
    by_fate = {"kept": kept * rows, "max_age": max_age * rows}
    return Fates(0 * rows, np.arange(len(spans)), begins, ends, by_fate)


def values(stack: object) -> dict[str, list[float]]:
    return {each.name: each.values.round(3).tolist() for each in stack.series}  # type: ignore[attr-defined]


def test_messages_of_a_file_are_spread_over_its_days() -> None:
    stack, width = by_time(fates((0.5, 2.5), (0.5, 0.5)))
    assert width == 1
    assert stack.edges.tolist() == [0, 1, 2, 3]
    assert values(stack) == {"kept": [15, 6, 3], "max_age": [5, 2, 1]}


def test_a_gap_is_empty_and_a_long_history_has_wider_columns() -> None:
    stack, width = by_time(fates((0, 10), (355, 365)))
    assert width == 7
    assert len(stack.edges) <= MOST_COLUMNS + 1
    kept = stack.series[0].values
    assert kept.sum() == pytest.approx(24)
    assert (kept[3:49] == 0).all()


def test_segments_are_columns_where_days_are_few() -> None:
    stack, caption = columns_of(fates((0, 0.5), (0.5, 1)))
    assert not stack.is_time
    assert values(stack) == {"kept": [12, 12], "max_age": [4, 4]}
    assert caption == "Messages per segment, the oldest first."


def test_segments_are_columns_where_a_clock_jumped() -> None:
    spans = [(number / 10, number / 10) for number in range(50)]
    stack, _ = columns_of(fates(*spans, (40_000, 40_000)))
    assert not stack.is_time


def test_many_segments_share_columns() -> None:
    stack, width = by_segment(fates(*[(0, 0)] * 10_000))
    assert (width, len(stack.series[0].values)) == (167, 60)
    assert stack.series[0].values.sum() == 120_000


def test_a_chart_has_every_message_of_the_plan_once(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, {**ORDERS, "segment_size": "1KiB"})
    stream = warehouse.stream("ORDERS")
    stream.publish(lines(200))
    plan = stream.plan().plan
    chart = plan_chart(plan, plan.cause.files)
    assert chart.headline == "ORDERS: a pass removes 73 of 200 messages"
    [stack] = chart.parts
    sums = {each.name: round(each.values.sum()) for each in stack.series}  # type: ignore[union-attr]
    assert sums == {"kept": 127, "max_age": 73}


def test_a_plan_from_a_cache_is_drawn_whole_or_refused(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS, format="delta").stream("ORDERS")
    stream.publish(lines(20, first_ns=NOW - DAY))
    stream.plan()
    remembered = stream.plan()
    assert remembered.plan.cause.files.num_rows == 0
    assert remembered.plot().headline == "ORDERS: a pass removes none of 20 messages"
    stream.publish(lines(1, first_ns=NOW))
    with pytest.raises(StalePlanError, match="plan again to draw it"):
        remembered.plot()


def test_an_empty_stream_and_a_single_message_have_pictures(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    assert stream.plan().plot().headline == "ORDERS: no messages"
    assert stream.plot_history().headline == "ORDERS: no run removed anything"
    stream.publish(lines(1))
    assert stream.plan().plot().headline == "ORDERS: a pass removes 1 of 1 message"
    stream.purge().apply(allow_large=True)
    assert stream.plot_due().headline == "ORDERS: nothing falls due within 30 days"
    assert stream.simulate(at=[]).plot().headline == "ORDERS: messages that 1 policy would keep"
