"""Rows of every kind of time, with and without statistics, leave a table exactly when they are old."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.core.table_policy import Column, TableColumns, TableLimits, TablePolicy, Unit
from retention.engines.local import LocalEngine
from retention.tables.apply import apply_plan
from retention.tables.opened import OpenedTable
from retention.tables.planning import plan_table

ZONE = ZoneInfo("Europe/Berlin")
NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
CUTOFF = NOW - timedelta(days=30)
NEVER = datetime(9999, 12, 31, tzinfo=UTC)
"""The sentinel of many tables, beyond what nanoseconds can express."""
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "event": pa.struct({"at": pa.timestamp("us", "UTC")}),
        "day": pa.date32(),
        "local": pa.timestamp("us"),
        "ms": pa.int64(),
    }
)
KINDS: dict[str, tuple[Column, Unit | None, Callable[[Any], bool]]] = {
    "nested": (("event", "at"), None, lambda at: bool(at <= CUTOFF)),
    "day": (("day",), None, lambda day: _ended(day) <= CUTOFF),
    "local": (("local",), None, lambda at: bool(at.replace(tzinfo=ZONE) <= CUTOFF)),
    "integer": (("ms",), "ms", lambda ms: bool(ms <= int(CUTOFF.timestamp()) * 1000)),
}
"""Name → the column, its unit, and whether a value is old."""


def _ended(day: date) -> datetime:
    return NEVER if day == NEVER.date() else datetime.combine(day + timedelta(days=1), time(), ZONE)


def _row(number: int, chance: random.Random) -> dict[str, Any]:
    ages = [chance.uniform(-2, 60), chance.uniform(29.9, 30.1), None, NEVER]
    age = chance.choices(ages, [6, 3, 1, 1])[0]
    at = NOW - timedelta(days=age) if isinstance(age, float) else age
    local = at and (at if at == NEVER else at.astimezone(ZONE)).replace(tzinfo=None)
    ms = at and int(at.timestamp() * 1000)
    return {"id": number, "event": {"at": at}, "day": at and at.date(), "local": local, "ms": ms}


def _value(row: dict[str, Any], column: Column) -> Any:
    for name in column:
        row = row[name]
    return row


@pytest.mark.parametrize("partitions", [None, ["day"]], ids=["plain", "partitioned"])
@pytest.mark.parametrize("indexed", ["32", "0"], ids=["statistics", "no statistics"])
@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_old_rows_go(
    tmp_path: Path, kind: str, indexed: str, partitions: list[str] | None
) -> None:
    chance = random.Random(kind + indexed)
    (column, unit, is_old), location = KINDS[kind], str(tmp_path / "events")
    rows = [_row(number, chance) for number in range(40)]
    for part in (rows[:20], rows[20:]):
        content = pa.Table.from_pylist(part, SCHEMA)
        properties: dict[str, str | None] = {"delta.dataSkippingNumIndexedCols": indexed}
        write_deltalake(
            location, content, mode="append", partition_by=partitions, configuration=properties
        )
    columns = TableColumns(time=column, unit=unit, zone="Europe/Berlin")
    policy = TablePolicy(columns, TableLimits(max_age_ns=30 * 86_400 * 10**9))
    (tmp_path / "warehouse").mkdir()
    now_ns = int(NOW.timestamp()) * 10**9
    table = OpenedTable("events", location, policy, str(tmp_path / "warehouse"), lambda: now_ns)
    apply_plan(table, plan_table(table, now_ns, lambda size: LocalEngine()))
    left = [row["id"] for row in rows if (at := _value(row, column)) is None or not is_old(at)]
    assert sorted(DeltaTable(location).to_pyarrow_table()["id"].to_pylist()) == left
