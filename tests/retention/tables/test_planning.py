"""Plans of passes over tables of others: what the log decides is not read, and the rest is what SQL would remove."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given

from retention.core.table_policy import RowPolicy, TableColumns, TableLimits, TablePolicy
from retention.engines.local import LocalEngine
from retention.errors import ConfigError, RefusedError
from retention.tables.apply import apply_plan
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_table
from retention.tables.state import state_of_table
from tests.retention.tables.worlds import laid
from tests.support.delta_tables import add, metadata, write_entry
from tests.support.laws import law_on_disk
from tests.support.table_worlds import TableWorld, table_worlds

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
DAY = timedelta(days=1)
COLUMNS = TableColumns(time=("at",), key=(("user",),), expires_at=("until",), size=("bytes",))
SCHEMA = pa.schema(
    {
        "at": pa.timestamp("us", "UTC"),
        "user": pa.string(),
        "until": pa.timestamp("us", "UTC"),
        "bytes": pa.int64(),
        "tenant": pa.string(),
    }
)
AGE_NS = 30 * 86_400 * 10**9


def rows(first_age: int, count: int = 10, tenant: str = "acme") -> list[dict[str, Any]]:
    """Rows of one a day, the first this many days old; every fifth is expired, every seventh has no time."""
    return [
        {
            "at": None if age % 7 == 0 else NOW - age * DAY - len(tenant) * timedelta(hours=1),
            "user": None if age % 4 == 0 else f"u{age % 3}",
            "until": NOW - DAY if age % 5 == 0 else None,
            "bytes": 10,
            "tenant": tenant,
        }
        for age in range(first_age, first_age - count, -1)
    ]


def table(
    folder: Path, files: Sequence[list[dict[str, Any]]], policy: TablePolicy, **options: Any
) -> OpenedTable:
    """A Delta table of these files."""
    location = str(folder / "events")
    for each in files:
        write_deltalake(location, pa.Table.from_pylist(each, SCHEMA), mode="append", **options)
    (folder / "warehouse").mkdir()
    warehouse, clock = str(folder / "warehouse"), lambda: int(NOW.timestamp()) * 10**9
    return OpenedTable("events", location, policy, warehouse, clock)


def planned(opened: OpenedTable) -> TablePlan:
    return planned_at(opened, opened.clock())


def planned_at(opened: OpenedTable, as_of_ns: int) -> TablePlan:
    return plan_table(opened, as_of_ns, lambda size: LocalEngine())


@law_on_disk
@given(table_worlds().filter(lambda world: world.rows))
def test_what_the_log_foretells_of_later_passes_holds_the_plan_of_each(world: TableWorld) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened = laid(world, Path(folder))
        for as_of_ns in (opened.clock(), opened.clock() // 2, 0):
            state = state_of_table(opened, as_of_ns)
            ahead = state.ahead
            for due in ahead.forecast:
                removed = planned_at(opened, due.by_ns).removed_rows
                assert due.rows_at_least <= removed <= due.rows_at_most
            if ahead.next_due_ns is not None and ahead.next_due_ns > as_of_ns:
                assert not planned_at(opened, ahead.next_due_ns - 1).removed_rows
            elif ahead.next_due_ns is None and ahead.forecast:
                assert not planned_at(opened, ahead.forecast[-1].by_ns).removed_rows


def test_files_that_are_old_as_a_whole_are_not_read(tmp_path: Path) -> None:
    policy = TablePolicy(replace(COLUMNS, expires_at=None), TableLimits(max_age_ns=AGE_NS))
    old = [row for row in rows(60) if row["at"]]
    cut = [row for row in rows(35) if row["at"]]
    opened = table(tmp_path, [old, cut, rows(9)], policy)
    plan = planned(opened)
    assert (len(plan.dropped), len(plan.cut), plan.files_read) == (1, 1, 1)
    assert plan.by_limit == {"max_age": len(old) + sum(row["at"] <= NOW - 30 * DAY for row in cut)}


@pytest.mark.parametrize("partitions", [[], ["tenant"]])
def test_a_pass_leaves_what_sql_leaves(tmp_path: Path, partitions: list[str]) -> None:
    limits = TableLimits(max_age_ns=AGE_NS, max_rows_per_key=2, expires=True)
    policy = TablePolicy(
        COLUMNS,
        limits,
        (
            RowPolicy(
                ((("tenant",), ("other",)),),
                replace(limits, max_age_ns=None),
                frozenset({"max_age"}),
            ),
        ),
    )
    files = [rows(60), rows(35), rows(19, 19), rows(50, 30, "other")]
    opened = table(tmp_path, files, policy, partition_by=partitions or None)
    before = pl.scan_delta(opened.location).collect().to_arrow()
    plan = planned(opened)
    apply_plan(opened, plan)
    left = pl.scan_delta(opened.location).collect().to_arrow()
    cutoff, now = NOW - 30 * DAY, NOW
    duckdb.sql("set timezone = 'UTC'")
    relation = duckdb.sql(
        f"""
        with aged as (
            select * from before
            where not coalesce(until <= timestamptz '{now}', false)
              and not (tenant = 'acme' and coalesce("at" <= timestamptz '{cutoff}', false))
        )
        select * from aged where "at" is null or "user" is null
        union all
        select * from aged where "at" is not null and "user" is not null
        qualify row_number() over (partition by "user" order by "at" desc) <= 2
        """  # noqa: S608
    )
    assert relation is not None
    wanted = relation.to_arrow_table()
    assert left.num_rows == wanted.num_rows == before.num_rows - plan.removed_rows
    names = SCHEMA.names
    order = [(name, "ascending") for name in names]
    assert (
        left.select(names)
        .cast(SCHEMA)
        .sort_by(order)
        .equals(wanted.select(names).cast(SCHEMA).sort_by(order))
    )
    assert planned(opened).is_empty
    DeltaTable(opened.location).delete()
    assert planned(opened).is_empty


def test_a_table_without_files_has_nothing_to_remove(tmp_path: Path) -> None:
    limits = TableLimits(max_age_ns=AGE_NS)
    other = RowPolicy(((("tenant",), ("other",)),), TableLimits(), frozenset({"max_age"}))
    opened = table(tmp_path, [rows(60)], TablePolicy(COLUMNS, limits, (other,)))
    DeltaTable(opened.location).delete()
    assert planned(opened).is_empty


def test_a_column_that_is_no_time_is_refused_with_what_to_write(tmp_path: Path) -> None:
    policy = TablePolicy(replace(COLUMNS, time=("bytes",)), TableLimits(max_age_ns=AGE_NS))
    opened = table(tmp_path, [rows(9)], policy)
    with pytest.raises(ConfigError, match="write `unit: s`"):
        planned(opened)
    with pytest.raises(ConfigError, match="no column when"):
        planned(replace(opened, policy=replace(policy, columns=TableColumns(time=("when",)))))
    with pytest.raises(ConfigError, match="the type string"):
        planned(replace(opened, policy=replace(policy, columns=TableColumns(time=("user",)))))


def test_a_table_that_only_grows_is_refused_until_it_may_shrink(tmp_path: Path) -> None:
    policy = TablePolicy(COLUMNS, TableLimits(max_age_ns=AGE_NS))
    opened = table(tmp_path, [rows(60)], policy, configuration={"delta.appendOnly": "true"})
    with pytest.raises(RefusedError, match="appendOnly is true"):
        planned(opened)
    DeltaTable(opened.location).alter.set_table_properties({"delta.appendOnly": "false"})
    assert planned(opened).by_limit["max_age"]


def mapped(name: str, kind: Any, number: int) -> dict[str, Any]:
    """A field of a table that maps columns by id."""
    ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": ids}


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    """A column of a data file with its field id."""
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def test_columns_mapped_by_id_are_found_by_it_whatever_a_file_calls_them(tmp_path: Path) -> None:
    fields = [mapped("at", "timestamp", 2)]
    schema = [mapped("event", {"type": "struct", "fields": fields}, 1), mapped("user", "string", 3)]
    mode = {"delta.columnMapping.mode": "id"}
    about = metadata(**mode)["metaData"] | {
        "schemaString": json.dumps({"type": "struct", "fields": schema})
    }
    opened = table(
        tmp_path,
        [],
        TablePolicy(
            TableColumns(time=("event", "at"), key=(("user",),)),
            TableLimits(max_age_ns=AGE_NS, max_rows_per_key=1),
        ),
    )
    root = Path(opened.location)
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    write_entry(root, 0, [protocol, {"metaData": about}])
    users, ages = pa.array(["u", "v", "v", None]), [60, 31, 29, 1]
    names = {"a.parquet": ("col-1", "col-2", "col-3"), "b.parquet": ("col-3", "x", "col-1")}
    for version, (path, (outer, inner, user)) in enumerate(names.items(), 1):
        kinds = [
            field(outer, pa.struct([field(inner, pa.timestamp("us", "UTC"), 2)]), 1),
            field(user, pa.string(), 3),
        ]
        times = pa.array([{inner: NOW - age * DAY} for age in ages], kinds[0].type)
        rows = pa.table([times, users], schema=pa.schema(kinds))
        pq.write_table(rows, root / path)
        write_entry(root, version, [add(path, size=(root / path).stat().st_size)])
    plan = planned(opened)
    assert plan.by_limit == {"max_age": 4, "max_rows_per_key": 1}
    assert [sorted(each.dead) for each in plan.removals] == [[0, 1, 2], [0, 1]]
    apply_plan(opened, plan)
    assert planned(opened).is_empty
