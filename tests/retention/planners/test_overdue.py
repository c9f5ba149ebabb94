"""Overdue messages are reported by every answer about a stream, and removed with `expiry: each`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse
from retention.core.inventory import Inventory
from retention.core.prefix import Prefix, TailTotals
from retention.engines.select import Engines
from retention.jobs.retain import summary
from retention.plan.overdue import Overdue
from retention.planners import afresh, cached
from retention.views.html import plan_html, report_html, state_html
from retention.views.json_entries import plan_entry, report_entry
from retention.views.text import plan_text, report_text, state_text
from tests.support.laying import SECOND, START, File, Laid, held, lay, warehouse_with

NOW = START + 100 * SECOND
TIMES = ((90,), (10, 20), (91, 30), (92, 93))
"""Times by segment, in seconds; at an age limit of 50 seconds, three are too old."""
LINE = (
    "3 messages older than max_age are kept after message 1, stored 2023-11-14T22:14:50Z, which is younger"
    " (`expiry: each` would remove old ones too)"
)


@pytest.fixture(params=["delta", "parquet"])
def format_(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def stream(folder: Path, format_: str, **limits: Any) -> Warehouse:
    warehouse = warehouse_with(folder, format_, NOW, max_age="50s", **limits)
    opened = warehouse.stream("ORDERS").opened
    if not opened.store.exists():
        times = [START + time * SECOND for segment in TIMES for time in segment]
        messages = iter([Laid(seq, "a", time) for seq, time in enumerate(times, start=1)])
        files, base = [], 1
        for segment in TIMES:
            files.append(File(base, [next(messages) for _ in segment]))
            base += len(segment)
        lay(opened, files)
    return warehouse


def test_a_plan_says_it_and_so_does_one_that_opens_nothing(tmp_path: Path, format_: str) -> None:
    warehouse = stream(tmp_path, format_)
    opened = warehouse.stream("ORDERS").opened
    with Engines("local") as engines:
        first, again = (cached.plan_pass(opened, NOW, engines) for _ in range(2))
    found = Overdue(3, 3, 1, START + 90 * SECOND)
    assert first.plan.overdue == found
    assert any(LINE in line for line in plan_text(first.plan))
    assert "older than max_age" in plan_html(first.plan)
    assert again.plan.overdue == (found.at_least() if again.snapshot is None else found)
    assert format_ == "parquet" or again.snapshot is None
    assert any("3 messages older than max_age" in line for line in plan_text(again.plan))


class ThreeSegments:
    """The oldest segments of a stream; implements `Outlook`."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory

    def head(self, files: int) -> Prefix:
        del files
        oldest = replace(self.inventory, files=self.inventory.files.slice(0, 3))
        return Prefix(oldest, TailTotals(segments=1, messages=2, bytes=62))


def test_a_plan_from_the_oldest_segments_says_what_they_tell(tmp_path: Path) -> None:
    opened = stream(tmp_path, "delta").stream("ORDERS").opened
    inventory = opened.store.inventory(opened.store.snapshot())
    with Engines("local") as engines:
        seen = afresh._plan_oldest(opened, ThreeSegments(inventory), NOW, engines)
    assert seen is not None
    assert seen.plan.overdue == Overdue(3, None, 1, START + 90 * SECOND)


def test_a_run_its_report_and_the_job_say_it(tmp_path: Path, format_: str) -> None:
    warehouse = stream(tmp_path, format_)
    [outcome] = warehouse.apply()
    assert outcome.value is not None
    entry = report_entry(outcome)
    assert entry["overdue"]["messages_at_least"] == 3
    assert entry["overdue"]["behind_seq"] == 1
    assert any("3 messages older than max_age" in line for line in report_text(outcome.value))
    assert "older than max_age" in report_html(outcome.value)
    assert "; kept at least 3 older than max_age (expiry: head)" in summary([outcome], 1.0)


def test_the_state_says_it_without_reading_a_row(tmp_path: Path, format_: str) -> None:
    state = stream(tmp_path, format_).stream("ORDERS").state()
    assert state.overdue == Overdue(3, 3, 1, START + 90 * SECOND)
    assert state.as_json()["overdue"] == state.overdue.as_json()
    text = state_text(state)
    assert any("up to date, except old messages after a younger one" in line for line in text)
    assert f"  {LINE}" in text
    assert "older than max_age" in state_html(state)


def test_with_each_they_go_and_nothing_is_said(tmp_path: Path, format_: str) -> None:
    stream(tmp_path, format_)
    warehouse = stream(tmp_path, format_, expiry="each")
    assert warehouse.stream("ORDERS").state().overdue is None
    assert warehouse.stream("ORDERS").explain(2).goes
    [planned] = warehouse.plan()
    assert "overdue" not in plan_entry(planned)
    [outcome] = warehouse.apply()
    assert outcome.value is not None
    assert outcome.value.by_rule == {"max_age": 3}
    assert "overdue" not in report_entry(outcome)
    assert held(warehouse)["seq"].to_pylist() == [1, 4, 6, 7]
    state = warehouse.stream("ORDERS").state()
    assert "overdue" not in state.as_json()
    assert any("up to date" in line and "old messages" not in line for line in state_text(state))
