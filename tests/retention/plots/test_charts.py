"""What the other pictures show, before anything is drawn."""

from __future__ import annotations

import numpy as np

from retention.core.bounds import Bounds
from retention.core.units import DAY, HOUR
from retention.inspect.consumers import ConsumerInfo
from retention.plan.protected import ProtectedFor, ProtectedMessages
from retention.plan.simulation import SimulatedPass
from retention.plots.charts import Curves, Rows, Stack
from retention.plots.consumers import consumers_chart
from retention.plots.history import StoredNow, bytes_after, history_chart, kept_after
from retention.plots.simulation import due_areas
from retention.plots.warehouse import Measured, warehouse_chart
from tests.support.run_records import run_record

RUNS = [
    run_record(
        f"r{day}",
        status="done",
        as_of_ns=day * DAY,
        removed_messages=10,
        by_rule={"max_age": 8, "max_msgs": 2},
        next_seq={"0": 100 + day},
    )
    for day in (0, 1, 40)
]
UNDO = run_record(
    "u", kind="undo", status="done", as_of_ns=41 * DAY, undoes="r1", restored_messages=10
)


def test_messages_after_runs_are_counted_back_from_now() -> None:
    stored = StoredNow(60, 600, {0: 145}, at_ns=42 * DAY)
    curve = kept_after([*RUNS, UNDO], stored)
    # 5 were published after the last run, and the undo restored 10; 39 between the last two runs.
    # The undo has no count of its own, so that a gap begins there.
    assert curve.days.tolist() == [0, 1, 40, 41, 42]
    np.testing.assert_array_equal(curve.lower, [25, 16, 45, np.nan, 60])


def test_counts_of_runs_are_drawn_and_a_run_without_them_begins_a_gap() -> None:
    counted = [
        record.updated(kept_messages=7 + at, kept_bytes=70 + at) for at, record in enumerate(RUNS)
    ]
    runs = [counted[0], RUNS[1], counted[2]]
    stored = StoredNow(60, 600, {0: 145}, at_ns=42 * DAY)
    np.testing.assert_array_equal(bytes_after(runs, stored).lower, [70, np.nan, 72, 600])
    assert kept_after(runs, stored).lower.tolist() == [7, 26, 9, 60]
    chart = history_chart("S", [*reversed(counted)], None, "row")
    assert [part.title for part in chart.parts if not isinstance(part, Rows)] == [
        "Rows after each run",
        "Bytes after each run",
        "Removed",
    ]


def test_idle_runs_without_counts_are_no_gaps() -> None:
    idle = run_record("i", status="done", as_of_ns=2 * DAY)
    assert bytes_after([RUNS[0].updated(kept_bytes=5), idle], None).days.tolist() == [0]


def test_the_epoch_before_a_purge_has_no_numbers() -> None:
    purge = run_record("p", kind="purge", status="done", as_of_ns=DAY * 30, epoch=1, ends_epoch=0)
    curve = kept_after([*RUNS[:2], purge], StoredNow(7, 70, {0: 8}, at_ns=42 * DAY, epoch=1))
    np.testing.assert_array_equal(curve.lower, [np.nan, np.nan, 7])


def test_removals_of_undone_runs_are_a_series_apart() -> None:
    chart = history_chart("S", [UNDO, *reversed(RUNS)], None, "message")
    assert chart.headline == "S: 2 runs removed 20 messages (0 B); 1 more undone"
    [stack] = chart.parts
    assert isinstance(stack, Stack)
    sums = {each.name: each.values.sum() for each in stack.series}
    assert sums == {"max_age": 16, "max_msgs": 4, "undone": 10}
    assert [*np.flatnonzero(stack.series[-1].values)] == [1]


def test_dues_are_areas_by_rule_and_one_of_those_that_only_rows_decide() -> None:
    by_rule = {"max_age": Bounds(3, 9), "max_msgs": Bounds(2, 2)}
    at = [
        SimulatedPass(
            day * DAY, 20, 20, Bounds(day * 6, day * 11), Bounds(0, 0), by_rule if day else {}, {}
        )
        for day in (0, 1)
    ]
    assert [(each.name, each.lower[1], each.upper[1]) for each in due_areas(at)] == [
        ("max_age", 0, 3),
        ("max_msgs", 3, 5),
        ("by several rules", 5, 6),
        ("perhaps", 6, 11),
    ]


def info(name: str, pending: int) -> ConsumerInfo:
    return ConsumerInfo("S", name, {}, {}, {}, 1, 0, pending, 0)


def test_the_consumer_for_which_most_is_held_back_comes_first() -> None:
    entries = [ProtectedFor("slow", rule, 2, 2, 0) for rule in ("max_age", "max_msgs")]
    held = ProtectedMessages("hold", 4, 4, tuple(entries))
    chart = consumers_chart("S", [info("busy", 50), info("slow", 9)], held)
    assert chart.headline == "S: 4 messages are held back for slow"
    [rows] = chart.parts
    assert isinstance(rows, Rows)
    assert rows.names == ("slow", "busy")
    assert [each.values.tolist() for panel in rows.panels for each in panel.series] == [
        [1, 1],
        [9, 50],
        [4, 0],
    ]
    assert consumers_chart("S", [], None).headline == "S: no consumers"


def test_ten_thousand_streams_are_thirty_rows_the_worst_first() -> None:
    streams = [Measured(f"s{number}", number, 0) for number in range(10_000)]
    chart = warehouse_chart(
        [*streams, Measured("late", 1, 5 * HOUR), Measured("open", 1, None)], 2, 0
    )
    [rows] = chart.parts
    assert isinstance(rows, Rows)
    assert rows.names[:3] == ("open", "late", "s9999")
    assert len(rows.names) == 30
    assert "9,972 more with" in chart.caption
    assert chart.caption.endswith("2 could not be read.")
    assert warehouse_chart([], 0, 0).headline == "No streams"


def test_runs_of_a_clock_that_was_ahead_do_not_squeeze_the_others() -> None:
    late = RUNS[-1].updated(run="late", as_of_ns=47_000 * DAY)
    now = StoredNow(60, 600, {0: 145}, at_ns=42 * DAY)
    chart = history_chart("S", [late, *reversed(RUNS)], now, "message")
    assert chart.caption.endswith("Not drawn: 1 run as of a later time than now.")
    *curves, stack = chart.parts
    assert isinstance(stack, Stack)
    assert stack.edges.max() <= 43
    assert all(isinstance(part, Curves) and part.curves[0].days.max() == 42 for part in curves)


def test_headline_of_a_warehouse_counts_tables_apart_from_streams() -> None:
    streams = [Measured(f"s{number}", 10, 0) for number in range(3)]
    chart = warehouse_chart([*streams, Measured("orders", 2, 1, "table")], 0, 0)
    assert chart.headline == "3 streams and 1 table (32 B), 1 behind"
