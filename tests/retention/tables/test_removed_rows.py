"""The rows and the statements of a plan: both are what the pass removes."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.errors import ConfigError, StalePlanError, UsageError
from retention.tables.apply import apply_plan
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.removed_rows import plan_statements, removed_rows
from retention.views.removed_rows import write_rows
from tests.retention.tables.worlds import laid, planned
from tests.support.laws import law_on_disk
from tests.support.table_worlds import TableWorld, removed, table_worlds, with_total_order


@law_on_disk
@given(table_worlds().filter(lambda world: world.rows), st.randoms(use_true_random=False))
def test_rows_and_statements_are_what_a_pass_removes(world: TableWorld, random: object) -> None:
    total = with_total_order(world, random)
    with tempfile.TemporaryDirectory() as folder:
        opened = laid(total, Path(folder))
        before = pl.scan_delta(opened.location).collect().to_arrow()
        plan = planned(opened)
        rows = pa.concat_tables(removed_rows(opened, plan))
        gone = removed(total)
        assert sorted(rows["limit"].to_pylist()) == sorted(gone.values())
        assert rows.num_rows == plan.removed_rows
        by_sql = _left_by_statements(before, opened, plan)
        assert {(row.file, row.row) for row in total.rows} - gone.keys() == by_sql
        apply_plan(opened, plan)
        left = pl.scan_delta(opened.location).collect().to_arrow()
        assert set(zip(left["file"].to_pylist(), left["row"].to_pylist(), strict=True)) == by_sql


def _left_by_statements(
    before: pa.Table, opened: OpenedTable, plan: TablePlan
) -> set[tuple[int, int]]:
    """The rows that the statements leave in DuckDB."""
    database = duckdb.connect().execute("SET TimeZone = 'UTC'; SET threads = 1")
    database.register("given", before)
    database.execute("CREATE TABLE events AS FROM given")
    for statement in plan_statements(opened, plan):
        named = statement.replace(f"delta.`{plan.location}`", "events")
        database.execute(named.replace("`", '"').replace("struct(", "row("))
    return set(database.execute("SELECT file, row FROM events").fetchall())


AT = TableColumns(time=("at",), key=(("row",), ("who",)))
POLICY = TablePolicy(AT, TableLimits(max_age_ns=10**9))


def _events(folder: Path) -> OpenedTable:
    """A table of three rows in each of two partitions, of which the first two are removed."""
    rows = {
        "at": pa.array([0, 10**6, 10**8] * 2, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "row": pa.array([b"a", b"\xff", None] * 2),
        "who": ["x y"] * 3 + ["z"] * 3,
    }
    location, warehouse = str(folder / "events"), folder / "warehouse"
    write_deltalake(location, pa.table(rows), partition_by="who")
    warehouse.mkdir()
    return OpenedTable("events", location, POLICY, str(warehouse), lambda: 3 * 10**9)


def test_rows_are_written_in_the_format_that_the_suffix_names(tmp_path: Path) -> None:
    events = _events(tmp_path)
    plan = planned(events)
    for suffix in ("csv", "jsonl", "parquet"):
        place = tmp_path / f"rows.{suffix}"
        for _ in range(2):
            assert write_rows(str(place), removed_rows(events, plan)) == 4
        query = f"FROM '{place}' ORDER BY file, row"
        relation = duckdb.sql(query)
        assert relation is not None
        read = relation.to_arrow_table()
        assert read.column_names == ["file", "row", "limit", "at", "row_", "who"]
        assert read["row"].to_pylist() == [0, 1, 0, 1]
        assert read["who"].to_pylist() == ["x y", "x y", "z", "z"]
        assert [value.timestamp() for value in read["at"].to_pylist()] == [0, 1, 0, 1]
        assert all((Path(plan.location) / file).exists() for file in read["file"].to_pylist())
    assert (tmp_path / "rows.csv").read_text().splitlines()[2].endswith(",0xff,x y")


def test_no_text_of_csv_is_a_formula(tmp_path: Path) -> None:
    rows = {
        "file": ["-a", "b"],
        "row": [-1, 2],
        "limit": ["\tmax_age", "max_age"],
        "price": [Decimal("-1.50"), None],
        "who": [b"=1+1", b"@x"],
        "+x": [-0.5, 2.0],
    }
    for suffix in ("csv", "jsonl"):
        write_rows(str(tmp_path / f"rows.{suffix}"), [pa.table(rows)])
    assert (tmp_path / "rows.csv").read_text().splitlines() == [
        "file,row,limit,price,who,'+x",
        "'-a,-1,'\tmax_age,-1.50,'=1+1,-0.5",
        "b,2,max_age,,'@x,2.0",
    ]
    assert '"file": "-a"' in (tmp_path / "rows.jsonl").read_text()


def test_a_file_of_rows_replaces_nothing_else(tmp_path: Path) -> None:
    events = _events(tmp_path)
    plan = planned(events)
    other = tmp_path / "notes.csv"
    other.write_text("file,rows\n")
    with pytest.raises(UsageError, match="something other than removed rows as CSV"):
        write_rows(str(other), removed_rows(events, plan))
    with pytest.raises(UsageError, match=r"write \.parquet, \.csv or \.jsonl"):
        write_rows(str(tmp_path / "rows.txt"), removed_rows(events, plan))
    assert other.read_text() == "file,rows\n"


def test_rows_and_statements_are_those_of_the_planned_table(tmp_path: Path) -> None:
    events = _events(tmp_path)
    plan = planned(events)
    write_deltalake(tmp_path / "other", pa.table({"at": [1]}))
    other = replace(events, location=str(tmp_path / "other"))
    for ask in (removed_rows, plan_statements):
        with pytest.raises(StalePlanError, match="another table is there"):
            list(ask(other, plan))


def test_a_key_that_the_table_lacks_is_refused_before_a_pass(tmp_path: Path) -> None:
    opened = _events(tmp_path)
    wrong = replace(POLICY, columns=replace(AT, key=(("whom",),)))
    with pytest.raises(ConfigError, match="no column whom"):
        planned(replace(opened, policy=wrong))
