"""The encodings of a data file, read by every reader that users have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake
from pyspark.sql import SparkSession

from retention.core.message_rows import complete_rows
from retention.datafile import parquet

NUMBERS = ("seq", "ts_ns", "time", "size", "deadline_ns", "origin_ts_ns")
ROWS = 5_000
AWAY = {0: 2**62, 1: -(2**62), 2: 0}
"""Origins so far apart that their differences do not fit into 64 bits."""
QUERY = (
    "SELECT count(*) AS n, sum(seq) AS a, min(ts_ns) AS b, max(ts_ns) AS c, sum(size) AS d, max(origin_ts_ns) AS e "
    "FROM t WHERE seq > 10"
)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "part.parquet"
    path.parent.mkdir()
    raw = pa.table(
        {
            "seq": pa.array(range(1, ROWS + 1), pa.int64()),
            "subject": [f"s.{row % 7}" for row in range(ROWS)],
            "headers": pa.nulls(ROWS, pa.binary()),
            "payload": pa.array([b"x" * (row % 50) for row in range(ROWS)], pa.binary()),
            "ts_ns": pa.array((row * 7_919 % ROWS for row in range(ROWS)), pa.int64()),
            "origin_ts_ns": pa.array(AWAY.get(row % 5) for row in range(ROWS)).cast(pa.int64()),
        }
    )
    parquet.write_messages(str(path), [complete_rows(raw, "file")])
    return path


def test_numbers_are_stored_as_differences(written: Path) -> None:
    group = pq.read_metadata(written).row_group(0)
    encodings = {
        column.path_in_schema: column.encodings
        for column in (group.column(number) for number in range(group.num_columns))
    }
    assert {name for name in encodings if "DELTA_BINARY_PACKED" in encodings[name]} == set(NUMBERS)


@pytest.mark.parametrize(
    ("rows", "subjects", "is_coded"),
    [(ROWS, 4_500, True), (ROWS, ROWS, False), (20 * ROWS, ROWS, True), (100, 100, True)],
)
def test_subjects_are_a_dictionary_if_they_repeat(
    tmp_path: Path, rows: int, subjects: int, is_coded: bool
) -> None:
    raw = pa.table(
        {
            "seq": pa.array(range(1, rows + 1), pa.int64()),
            "subject": [f"s.{row % subjects}" for row in range(rows)],
            "headers": pa.nulls(rows, pa.binary()),
            "payload": pa.nulls(rows, pa.binary()).fill_null(b""),
            "ts_ns": pa.array(range(rows), pa.int64()),
        }
    )
    path = tmp_path / "part.parquet"
    complete = complete_rows(raw, "file")
    parquet.write_messages(str(path), [complete])
    opened = pq.ParquetFile(path)
    at = opened.schema_arrow.get_field_index("subject")
    assert opened.metadata.row_group(0).column(at).has_dictionary_page == is_coded
    assert opened.read().select(complete.column_names).equals(complete)


def _duckdb(path: Path) -> dict[str, int]:
    with duckdb.connect() as connection:
        connection.read_parquet(str(path)).create_view("t")
        [row] = connection.sql(QUERY).pl().to_dicts()
    return row


def _polars(path: Path) -> dict[str, int]:
    [row] = pl.SQLContext(t=pl.scan_parquet(path)).execute(QUERY).collect().to_dicts()
    return row


def _deltalake(path: Path) -> dict[str, int]:
    convert_to_deltalake(str(path.parent))
    query = QueryBuilder().register("t", DeltaTable(str(path.parent)))
    [row] = pa.table(query.execute(QUERY).read_all()).to_pylist()
    return row


READERS: dict[str, Callable[[Path], dict[str, int]]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "deltalake": _deltalake,
}


def expected(path: Path) -> dict[str, int]:
    rows = [
        row for row in pq.read_table(path, columns=list(NUMBERS)).to_pylist() if row["seq"] > 10
    ]
    times = [row["ts_ns"] for row in rows]
    return {
        "n": len(rows),
        "a": sum(row["seq"] for row in rows),
        "b": min(times),
        "c": max(times),
        "d": sum(row["size"] for row in rows),
        "e": 2**62,
    }


@pytest.mark.parametrize("reader", READERS)
def test_others_read_them(written: Path, reader: str) -> None:
    assert READERS[reader](written) == expected(written)


@pytest.mark.spark
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_them(spark: SparkSession, written: Path, vectorized: str) -> None:
    setting = "spark.sql.parquet.enableVectorizedReader"
    before = spark.conf.get(setting)
    spark.conf.set(setting, vectorized)
    try:
        spark.read.parquet(str(written)).createOrReplaceTempView("t")
        [row] = spark.sql(QUERY).collect()
    finally:
        spark.conf.set(setting, str(before))
    assert row.asDict() == expected(written)
