"""Ingests with a file system or settings of the session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.dialects.column_mapping import ColumnMapping
from retention.engines.spark.fixed_settings import settings_of_block
from retention.errors import DamagedError, RefusedError
from retention.ingest.table_source import TableSource, ingest
from tests.support.plain_store import opened_stream, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
_WAYWARD = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
"""Setting → a value under which Spark reads other instants, days, names or types from the same file."""


def mounted(spark: SparkSession, directory: Path, authority: str) -> str:
    """A location only accessible through Hadoop, backed by a local directory."""
    context = spark.sparkContext._jsc
    assert context is not None
    context.hadoopConfiguration().set(
        f"fs.viewfs.mounttable.{authority}.link./in", f"file://{directory}"
    )
    return f"viewfs://{authority}/in"


def test_a_directory_that_only_spark_reaches_comes_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in" / "code=007"
    folder.mkdir(parents=True)

    def write(name: str, *payloads: str) -> None:
        rows = (json.dumps({"what": payload}) + "\n" for payload in payloads)
        (folder / name).write_text("".join(rows))

    location = mounted(spark, tmp_path / "in", "directory")
    columns = ColumnMapping({"subject": "concat('orders.', code)", "payload": "what"})
    opened, source = opened_stream(tmp_path / "lake"), TableSource(location, "json", columns)
    write("a b[1]", "1", "2")
    write("b%20", "3")
    assert [ingest(opened, source, spark).messages for _ in range(2)] == [3, 0]
    write("c", "4")
    assert ingest(opened, source, spark).messages == 1
    rows = store_of(opened).rows()
    assert {*rows["subject"].to_pylist()} == {"orders.007"}
    assert rows["payload"].to_pylist() == [b"1", b"2", b"3", b"4"]
    (folder / "d").write_text('{"what": "5"')
    with pytest.raises(DamagedError, match=r"viewfs://directory/in/code=007/d.* cannot be read as"):
        ingest(opened, source, spark)
    write("d", "5")
    write("c", "4", "6")
    with pytest.raises(RefusedError, match="code=007/c grew after it was taken"):
        ingest(opened, source, spark)


@pytest.mark.thorough
def test_a_delta_table_that_only_spark_reaches_comes_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "in" / "table"

    def grow(*numbers: int) -> None:
        write_deltalake(table, pa.table({"n": numbers, "w": ["x"] * len(numbers)}), mode="append")

    grow(2, 3)
    columns = ColumnMapping({"subject": "concat('orders.', n)", "payload": "w"})
    location = mounted(spark, tmp_path / "in", "delta") + "/table"
    opened, source = opened_stream(tmp_path / "lake"), TableSource(location, "delta", columns)
    assert [ingest(opened, source, spark).messages for _ in range(2)] == [2, 0]
    grow(9)
    DeltaTable(table).optimize.compact()
    assert ingest(opened, source, spark).messages == 1
    subjects = store_of(opened).rows()["subject"].to_pylist()
    assert subjects == ["orders.2", "orders.3", "orders.9"]


def test_old_times_and_other_case_are_the_same_under_every_setting(
    spark: SparkSession, tmp_path: Path
) -> None:
    with settings_of_block(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        spark.sql(
            "SELECT timestamp'2026-01-02 03:04:05.678Z' AS at, timestamp'1450-01-02 03:04:05Z' AS old, "
            "date'1450-01-02' AS day, 'x' AS what"
        ).write.parquet(str(tmp_path / "in"))
    columns = {
        "subject": "'orders.a'",
        "payload": "concat(WHAT, ' ', CAST(old AS STRING), ' ', CAST(day AS STRING))",
        "time": "AT",
    }
    for own in ({}, _WAYWARD):
        opened = opened_stream(tmp_path / f"lake {len(own)}")
        with settings_of_block(spark, own):
            ingest(
                opened, TableSource(str(tmp_path / "in"), "parquet", ColumnMapping(columns)), spark
            )
        rows = store_of(opened).rows()
        assert rows["payload"].to_pylist() == [b"x 1450-01-02 03:04:05 1450-01-02"]
        assert rows["ts_ns"].to_pylist() == [1_767_323_045_678_000_000]
