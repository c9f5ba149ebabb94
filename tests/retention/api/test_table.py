"""A table in place through the warehouse that lists it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import UsageError

NOW = 1_800_000_000 * 10**9


def warehouse(folder: Path) -> Warehouse:
    """A warehouse that lists one table, of rows at 100 instants a day apart."""
    seconds = [NOW // 10**9 - 86_400 * age for age in range(100)]
    write_deltalake(folder / "events", pa.table({"at": pa.array(seconds, pa.int64())}))
    table = {"name": "events", "location": "events", "time": "at", "unit": "s", "max_age": "30d"}
    file = folder / "retention.yaml"
    file.write_text(json.dumps({"warehouse": "warehouse", "tables": [table]}))
    (folder / "warehouse").mkdir()
    return open_warehouse(file, engine="local", clock=lambda: NOW)


def test_a_listed_table_is_planned_applied_and_undone(tmp_path: Path) -> None:
    opened = warehouse(tmp_path)
    assert opened.tables() == ["events"]
    table = opened.table("events")
    plan = table.plan()
    report = plan.apply()
    assert (plan.plan.by_limit, report.plan) == ({"max_age": 70}, plan.plan)
    assert DeltaTable(tmp_path / "events").to_pyarrow_table().num_rows == 30
    table.undo(report.run)
    assert DeltaTable(tmp_path / "events").to_pyarrow_table().num_rows == 100
    assert [record.kind for record in table.runs()] == ["undo_table", "apply_table"]


def test_a_table_has_pictures(tmp_path: Path) -> None:
    opened = warehouse(tmp_path)
    table = opened.table("events")
    plan = table.plan()
    assert plan.plot().headline == "events: a pass removes 70 of 100 rows"
    table.undo(plan.apply().run)
    assert table.plot_history().headline == "events: 0 runs removed 0 rows (0 B); 1 more undone"
    assert opened.plot().headline.startswith("1 table (")


def test_a_table_that_is_not_listed_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lists no table of that name; it lists events"):
        warehouse(tmp_path).table("orders")


def test_a_plan_displays_itself_and_becomes_a_frame(tmp_path: Path) -> None:
    plan = warehouse(tmp_path).table("events").plan("now-1d")
    assert repr(plan) == (
        "events: would remove 69 of 100 rows as of 2027-01-14T08:00:00Z: 69 by max_age\n"
        "  0 dropped, 1 cut, 0 kept files; read 1 file\n"
        "  1 row later than this instant: they stay"
    )
    assert "<strong" in plan._repr_html_()
    frame = plan.to_pandas()
    assert (list(frame["action"]), list(frame["by_rule.max_age"])) == (["cut"], [69])
    assert "removed 69 of 100 rows" in repr(plan.apply())
