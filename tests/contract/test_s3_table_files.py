"""Vectors and copies of data files on an object store: written whole, and read by ranges."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.delta.change_data import write_change_data
from retention.delta.vectors import read_vector, write_vectors
from retention.engines.local import LocalEngine
from retention.errors import DamagedError, RefusedError
from retention.storage import files
from retention.storage.s3 import storage_options
from retention.tables.apply import apply_plan
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_table
from retention.tables.undo import undo_run
from tests.support.delta_tables import rewritten

METADATA = {
    "schemaString": json.dumps(
        {
            "type": "struct",
            "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
        }
    ),
    "configuration": {},
}


def test_vectors_are_read_by_ranges_and_refused_if_cut(bucket: str) -> None:
    bitmaps = [BitMap64(range(0, 20_000, 7)), BitMap64([1]), BitMap64([2**40])]
    vectors = write_vectors(bucket, bitmaps)
    assert [read_vector(bucket, vector) for vector in vectors] == bitmaps
    with pytest.raises(DamagedError, match="no vector of"):
        read_vector(bucket, vectors[0] | {"offset": 10**6})
    files.delete(files.join(bucket, name) for name in files.names(bucket))
    with pytest.raises(DamagedError, match="it is missing"):
        read_vector(bucket, vectors[0])


def test_a_file_is_copied_without_its_dead_rows(bucket: str) -> None:
    with files.create(files.join(bucket, "p=a b", "a.parquet")) as sink:
        pq.write_table(pa.table({"id": range(1000)}), sink, row_group_size=100)
    add = {"path": "p=a%20b/a.parquet", "partitionValues": {"p": "a b"}}
    dead = BitMap64([*range(100, 200), 7])
    copy = rewritten(bucket, METADATA, add, dead)
    change = write_change_data(bucket, METADATA, add, dead)
    assert change is not None
    for action, expected in ((copy, {*range(1000)} - {*dead}), (change, {*dead})):
        location = files.join(bucket, action["path"].replace("%20", " "))
        with files.reading(location) as source:
            assert {*pq.read_table(source)["id"].to_pylist()} == expected
        assert action["size"] == files.length(location)


@pytest.fixture
def table(bucket: str) -> OpenedTable:
    """A table of two hundred seconds, of which 120 are old."""
    location, options = f"{bucket}/events", storage_options()
    for first in (0, 100):
        ids = pa.table({"id": pa.array(range(first, first + 100), pa.int64())})
        write_deltalake(location, ids, mode="append", storage_options=options)
    policy = TablePolicy(TableColumns(time=("id",), unit="s"), TableLimits(max_age_ns=10**9))
    return OpenedTable("events", location, policy, f"{bucket}/warehouse", lambda: 120 * 10**9)


def planned(table: OpenedTable) -> TablePlan:
    return plan_table(table, table.clock(), lambda size: LocalEngine())


def seconds(table: OpenedTable) -> list[int]:
    rows = DeltaTable(table.location, storage_options=storage_options()).to_pyarrow_table()
    return sorted(rows["id"].to_pylist())


def test_a_pass_and_its_undo_change_a_table_on_an_object_store(table: OpenedTable) -> None:
    plan = planned(table)
    run = apply_plan(table, plan).run
    assert (plan.by_limit, seconds(table)) == ({"max_age": 120}, [*range(120, 200)])
    undo_run(table, run)
    assert seconds(table) == [*range(200)]


def test_after_a_commit_of_spark_a_pass_needs_the_owners_word(table: OpenedTable) -> None:
    plan = planned(table)
    info = {"engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0", "operation": "WRITE"}
    place = files.join(table.location, "_delta_log", f"{2:020d}.json")
    files.replace(place, json.dumps({"commitInfo": info}).encode())
    ids = pa.table({"id": pa.array([1000], pa.int64())})
    write_deltalake(table.location, ids, mode="append", storage_options=storage_options())
    before = files.walk(table.location)
    with pytest.raises(RefusedError, match=r"Spark/4.2.0 .* version 2 .* exclusive: true"):
        apply_plan(table, plan)
    assert files.walk(table.location) == before
    run = apply_plan(replace(table, exclusive=True), plan).run
    undo_run(table, run)
    assert seconds(table) == [*range(200), 1000]
