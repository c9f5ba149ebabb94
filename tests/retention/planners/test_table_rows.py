from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from retention.core.table_policy import RowPolicy, TableLimits, TablePolicy
from retention.core.units import DAY, MICROSECOND
from retention.engine_port import Engine
from retention.engines.local import LocalEngine
from retention.engines.spark import engine
from retention.engines.spark.engine import SparkEngine
from retention.errors import DamagedError
from retention.planners import table_rows
from retention.planners.table_rows import DecidedRows, NarrowColumn, NarrowFile, read_narrow
from retention.rules.tables.files import narrow_columns
from retention.rules.tables.rows import RowNotes, RowRules
from tests.support.laws import law_on_disk
from tests.support.table_worlds import (
    AS_OF_NS,
    COLUMNS,
    NARROW,
    TIMES,
    Row,
    TableWorld,
    lost,
    removed,
    table_worlds,
)

US = pa.timestamp("us", "UTC")
ROW = Row(0, 0, 90, None, 1, "u", 1, "x", "a", "a")
WORLD = TableWorld(
    tuple(
        tuple(
            replace(
                ROW,
                file=file,
                row=row,
                time=60 + 5 * file + row if row else None,
                user=f"u{(file * row) % 7}" if row % 5 else None,
                version=f"{row * 37 % 11}",
                tenant="ab"[file % 2],
            )
            for row in range(12)
        )
        for file in range(8)
    ),
    TablePolicy(
        COLUMNS,
        TableLimits(max_age_ns=30_000, max_rows_per_key=4, max_rows=30, max_bytes=1_000),
        (
            RowPolicy(
                ((("tenant",), ("b",)),),
                TableLimits(max_age_ns=20_000, max_rows_per_key=2, max_rows=30, max_bytes=1_000),
                frozenset({"max_age", "max_rows_per_key"}),
            ),
        ),
    ),
    (False,) * 8,
    0,
)
"""Rows of some users, of which each limit but the last removes some."""


def laid(world: TableWorld, directory: Path, hidden: int) -> list[NarrowFile]:
    """The files of a world in Parquet, each with `hidden` dead rows in front."""
    return [
        laid_file(world, number, directory / f"{number}.parquet", hidden)
        for number in range(len(world.files))
    ]


def laid_file(world: TableWorld, number: int, place: Path, hidden: int) -> NarrowFile:
    rows = world.files[number]
    stored = [*[Row(0, 0, 1, 1, 1, "u", 1, "x", "a", "a")] * hidden, *rows]
    tenants = {row.tenant for row in rows}
    is_partition = len(tenants) == 1
    columns = {
        "time": pa.array([row.time for row in stored], pa.int64()).cast(US),
        "expires_at": pa.array([row.expires_at for row in stored], pa.int64()).cast(US),
        "size": pa.array([row.size for row in stored], pa.int32()),
        "user": [row.user for row in stored],
        "shard": pa.array([row.shard for row in stored], pa.int16()),
        "version": pa.array([row.version for row in stored], pa.string()),
        "tenant": pa.array([row.tenant for row in stored], pa.string()),
        "at": [{"region": row.region} for row in stored],
    }
    if is_partition:
        del columns["tenant"]
    pq.write_table(pa.table(columns), place, use_deprecated_int96_timestamps=True)
    narrow = tuple(
        NarrowColumn(name, path, US if "_at" in name or name == "time" else NARROW.field(name).type)
        for name, path in narrow_columns(world.policy).items()
    )
    constants = {
        column.name: pa.array(list(tenants), pa.string())
        for column in narrow
        if is_partition and column.path == ("tenant",)
    }
    return NarrowFile(
        number=number,
        location=str(place),
        rows=len(stored),
        columns=narrow,
        constants=pa.table(constants),
        dead=np.arange(hidden),
    )


def decided(world: TableWorld, tasks: list[NarrowFile], engine: Engine) -> DecidedRows:
    rules = RowRules(world.policy, TIMES, AS_OF_NS)
    return table_rows.decide_rows(tasks, rules, {}, engine)


def by_rows(world: TableWorld, hidden: int) -> dict[tuple[int, int], str]:
    is_by_file = world.policy.columns.size is None
    return {
        (file, row + hidden): rule
        for (file, row), rule in removed(world).items()
        if not (is_by_file and rule == "max_bytes")
    }


@pytest.mark.parametrize("held", [1 << 30, 0], ids=["in this process", "shuffled"])
@law_on_disk
@given(table_worlds(), st.integers(0, 2))
def test_rows_of_files_are_decided_as_by_a_walk_in_plain_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, world: TableWorld, hidden: int
) -> None:
    monkeypatch.setattr(table_rows, "HELD_BYTES", held)
    monkeypatch.setattr(table_rows, "BUCKET_BYTES", 700)
    tasks = laid(world, tmp_path, hidden)
    assert lost(decided(world, tasks, LocalEngine()).dead) == by_rows(world, hidden)


@pytest.mark.parametrize("held", [1 << 30, 0], ids=["in this process", "shuffled"])
@pytest.mark.spark
def test_both_engines_decide_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(table_rows, "HELD_BYTES", held)
    monkeypatch.setattr(table_rows, "BUCKET_BYTES", 700)
    monkeypatch.setattr(engine, "is_small_machine", lambda _: False)
    tasks = laid(WORLD, tmp_path, 1)
    here = decided(WORLD, tasks, LocalEngine())
    assert lost(here.dead) == by_rows(WORLD, 1)
    there = decided(WORLD, tasks, SparkEngine(spark))
    assert (there.notes, there.read) == (here.notes, here.read)
    assert there.dead.equals(here.dead)
    assert here.read.files == len(tasks)


def test_rows_that_no_limit_applies_to_are_counted(tmp_path: Path) -> None:
    rows = (
        ROW,
        replace(ROW, row=1, time=None),
        replace(ROW, row=2, user=None),
        replace(ROW, row=3, size=None, time=101),
    )
    limits = TableLimits(max_age_ns=90_000, max_rows_per_key=5, max_bytes=1_000)
    world = TableWorld((rows,), TablePolicy(COLUMNS, limits), (False,), 0)
    notes = decided(world, laid(world, tmp_path, 0), LocalEngine()).notes
    assert notes == RowNotes(without_time=1, without_key=1, without_size=1, ahead=1)


def test_a_column_that_a_file_does_not_have_is_null(tmp_path: Path) -> None:
    [task] = laid(WORLD, tmp_path, 0)[:1]
    absent = (
        NarrowColumn("time", ("none",), US),
        NarrowColumn("where_1", ("at", "none"), pa.string()),
    )
    rows, read = read_narrow(replace(task, columns=absent))
    assert rows["time"].null_count == rows["where_1"].null_count == task.rows
    assert rows["time"].type == pa.int64()
    assert read.files == 1


def test_a_day_in_a_file_of_local_times_is_its_first_instant(tmp_path: Path) -> None:
    place = tmp_path / "days.parquet"
    pq.write_table(pa.table({"at": pa.array([1, None], pa.date32())}), place)
    column = NarrowColumn("time", ("at",), pa.timestamp("us"))
    task = NarrowFile(0, str(place), 2, (column,), pa.table({}), np.zeros(0, np.int64))
    assert read_narrow(task)[0]["time"].to_pylist() == [DAY // MICROSECOND, None]


def test_a_file_that_is_gone_is_damage(tmp_path: Path) -> None:
    [task] = laid(WORLD, tmp_path, 0)[:1]
    Path(task.location).unlink()
    with pytest.raises(DamagedError, match=r"0\.parquet: cannot be read .*it is missing"):
        decided(WORLD, [task], LocalEngine())
