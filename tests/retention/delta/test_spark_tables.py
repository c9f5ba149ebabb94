"""Tables that Spark wrote, with every form of checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.delta import snapshot
from retention.delta.entries import PHYSICAL_NAME
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.statistics import bounds
from tests.support.delta_tables import assert_as_deltalake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PART_SIZE = "spark.databricks.delta.checkpoint.partSize"
V2_FORMAT = "spark.databricks.delta.checkpointV2.topLevelFileFormat"
ROWS = "id, timestamp_micros(1760000000000777 + id) AS at, concat('a b%', id % 3) AS p"
TABLES = {
    "classic with vectors": ("", "'delta.enableDeletionVectors'='true'", {}),
    "several parts": ("PARTITIONED BY (p)", "'delta.appendOnly'='false'", {PART_SIZE: "3"}),
    "v2 in JSON": (
        "",
        "'delta.checkpointPolicy'='v2', 'delta.enableDeletionVectors'='true'",
        {V2_FORMAT: "json"},
    ),
    "v2 in Parquet": (
        "PARTITIONED BY (p)",
        "'delta.checkpointPolicy'='v2', 'delta.enableInCommitTimestamps'='true'",
        {V2_FORMAT: "parquet", PART_SIZE: "3"},
    ),
    "typed statistics, mapped": (
        "PARTITIONED BY (p)",
        "'delta.checkpoint.writeStatsAsJson'='false', 'delta.checkpoint.writeStatsAsStruct'='true', "
        "'delta.columnMapping.mode'='name', 'delta.enableRowTracking'='true'",
        {},
    ),
}
FORMS = {
    "classic with vectors": "parquet",
    "several parts": "0*.0*.parquet",
    "v2 in JSON": "*-*.json",
    "v2 in Parquet": "*-*.parquet",
    "typed statistics, mapped": "parquet",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_spark_is_read_as_deltalake_reads_it(
    tmp_path: Path, spark: SparkSession, name: str
) -> None:
    partitions, properties, settings = TABLES[name]
    table = f"delta.`{tmp_path}`"
    insert, create = f"INSERT INTO {table}", f"CREATE TABLE {table} USING delta {partitions}"
    create += f" TBLPROPERTIES ({properties}, 'delta.checkpointInterval'='2')"
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        for start, statement in ((0, f"{create} AS"), (10, insert), (20, insert)):
            rows = f"SELECT /*+ REPARTITION(2) */ {ROWS} FROM range({start}, {start + 10})"  # noqa: S608
            spark.sql(f"{statement} {rows}")
        spark.sql(f"DELETE FROM {table} WHERE id IN (3, 14, 25)")  # noqa: S608
    finally:
        for key in settings:
            spark.conf.unset(key)
    states = [snapshot.read(str(tmp_path), version) for version in (1, 2, 3)]
    for state in states:
        assert_as_deltalake(state)
        assert_as_deltalake(snapshot.advance(state))
    is_timed = "InCommit" in properties
    assert all((state.in_commit_ms is not None) == is_timed for state in states)
    assert [*tmp_path.glob(f"_delta_log/{2:020d}.checkpoint.{FORMS[name]}")]
    for state in states[1:]:
        assert_bounds_hold(state)


def assert_bounds_hold(state: DeltaSnapshot) -> None:
    """Compare the bounds of each file with its rows, those behind vectors included."""
    columns = {
        field["metadata"].get(PHYSICAL_NAME, field["name"]): field["name"]
        for field in state.schema["fields"]
    }
    for physical, name in columns.items():
        if name == "p":
            continue
        kind = "long" if name == "id" else "timestamp"
        found = bounds(state, (physical,), kind)
        for row, path in enumerate(state.files["path"].to_pylist()):
            values = pq.ParquetFile(
                f"{state.root}/{unquote(path)}", coerce_int96_timestamp_unit="us"
            ).read([physical])
            truth = values[physical].cast(pa.int64()).to_pylist()
            low, high = found.min[row].as_py(), found.max[row].as_py()
            assert low <= min(truth) < low + 1_000
            assert high - 1_000 <= max(truth) <= high
            assert found.null_count[row].as_py() == 0
            assert found.rows[row].as_py() <= len(truth)
