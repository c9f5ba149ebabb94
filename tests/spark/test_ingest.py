from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs import ingest as job
from retention.errors import RefusedError, RetentionError, UsageError
from retention.ingest.sources import batches
from retention.ingest.table_source import Ingested, Source, ingest
from tests.support.plain_store import opened_stream, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_each_row_of_a_growing_table_is_taken_once(spark: SparkSession, tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    table = str(tmp_path / "source")
    source = Source(table, columns={"subject": "concat('orders.', who)", "payload": "what"})

    def grow(*rows: tuple[str, str]) -> None:
        spark.createDataFrame(list(rows), "who string, what string").write.format("delta").mode(
            "append"
        ).save(table)

    grow(("a", "1"), ("b", "2"))
    assert ingest(opened, source, spark) == Ingested("ORDERS", table, 1, 2, 78)
    assert ingest(opened, source, spark).messages == 0
    grow(("c", "3"))
    assert ingest(opened, source, spark).messages == 1
    assert store_of(opened).rows()["subject"].to_pylist() == ["orders.a", "orders.b", "orders.c"]

    shutil.rmtree(Path(opened.root) / "_retention" / "ingest")
    with pytest.raises(RefusedError, match="how far is lost"):
        ingest(opened, source, spark)


def test_a_run_that_failed_is_taken_up_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    opened = opened_stream(tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "1.json").write_text('{"subject": "orders.a", "payload": "x"}')
    source = Source(str(tmp_path / "source"), "json")

    def refuse() -> None:
        raise RetentionError("the disk is full")

    store_of(opened).before_commit.append(refuse)
    with pytest.raises(RetentionError, match="the disk is full"):
        ingest(opened, source, spark)
    assert ingest(opened, source, spark).messages == 1


def test_what_a_source_cannot_give_is_a_usage_error(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    spark.sql("SELECT 'orders.a' AS subject").write.parquet(str(source))
    with pytest.raises(UsageError, match="payload is missing"):
        ingest(opened_stream(tmp_path), Source(str(source), "parquet"), spark)
    with pytest.raises(UsageError, match="sequence: no such column"):
        ingest(opened_stream(tmp_path), Source(str(source), "parquet", {"sequence": "1"}), spark)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "the column payload is missing; an append takes .* with --column NAME=SQL"),
        (
            {"payload": "what"},
            r"--column payload=what: .*`what`.*; nothing was read; .* columns subject, n",
        ),
        ({"payload": "n +"}, r"--column payload=n \+: .*nothing was read"),
        ({"payload": "n"}, "the column payload is a bigint"),
        ({"payload": "'x'", "ts_ns": "'now'"}, "the column ts_ns is a string"),
        ({"payload": " "}, "--column payload: it needs an SQL expression"),
    ],
)
def test_columns_are_checked_before_spark_works(
    spark: SparkSession, tmp_path: Path, columns: dict[str, str], said: str
) -> None:
    source = Source(str(tmp_path / "source"), "parquet", columns)
    spark.sql("SELECT 'orders.a' AS subject, 1L AS n").write.parquet(source.location)
    opened = opened_stream(tmp_path)
    with pytest.raises(UsageError, match=said):
        ingest(opened, source, spark)
    assert not (Path(opened.root) / "_retention" / "ingest").exists(), "no query was started"


def test_a_source_that_is_not_there_is_a_usage_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"source is no Delta table; nothing was read"):
        ingest(opened_stream(tmp_path), Source(str(tmp_path / "source")), spark)


def test_a_source_of_many_files_comes_in_several_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_FILES", 2)
    source = Source(str(tmp_path / "source"), "parquet")
    rows = spark.range(3).selectExpr("'orders.a' AS subject", "CAST(id AS STRING) AS payload")
    rows.repartition(3, "payload").repartitionByRange(3, "payload").write.parquet(source.location)
    done = ingest(opened_stream(tmp_path), source, spark)
    assert (done.batches, done.messages) == (2, 3)


def test_the_job_writes_a_report_and_shares_exit_codes(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, report = tmp_path / "source", tmp_path / "report.json"
    spark.sql("SELECT 'orders.a' AS subject, 'x' AS payload").write.parquet(str(source))
    arguments = [
        *("ingest", "--warehouse", str(tmp_path / "warehouse"), "--source", str(source)),
        *("--source-format", "parquet", "--report-file", str(report)),
    ]
    monkeypatch.setattr(sys, "argv", [*arguments, "--stream", "ORDERS", "--as-of", "7"])
    assert job.main() == 0
    assert json.loads(report.read_text())["messages"] == 1
    assert job.main() == 0
    assert json.loads(report.read_text())["messages"] == 0
    monkeypatch.setattr(sys, "argv", arguments)
    assert job.main() == UsageError.exit_code
    assert "give one --stream" in capsys.readouterr().err
