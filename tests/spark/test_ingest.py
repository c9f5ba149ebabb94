from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.dialects.column_mapping import ColumnMapping
from retention.errors import DamagedError, RefusedError, RetentionError, UsageError
from retention.ingest.sources import batches
from retention.ingest.sources.delta_log import DeltaLog
from retention.ingest.sources.spark_reader import SparkReader
from retention.ingest.table_source import Ingested, TableSource, ingest
from retention.jobs import ingest as job
from retention.storage.listing import list_files
from tests.retention.views.test_json_schemas import wrong
from tests.support.plain_store import opened_stream, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.thorough
def test_each_row_of_a_growing_table_is_taken_once(spark: SparkSession, tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    table = str(tmp_path / "source")
    mapping = ColumnMapping({"subject": "concat('orders.', who)", "payload": "what"})
    source = TableSource(table, mapping=mapping)

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
    with pytest.raises(RefusedError, match="the position is lost"):
        ingest(opened, source, spark)


def test_a_run_that_failed_is_taken_up_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    opened = opened_stream(tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "1.json").write_text('{"subject": "orders.a", "payload": "x"}')
    source = TableSource(str(tmp_path / "source"), "json")

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
        ingest(opened_stream(tmp_path), TableSource(str(source), "parquet"), spark)
    with pytest.raises(UsageError, match="sequence: no such column"):
        ingest(
            opened_stream(tmp_path),
            TableSource(str(source), "parquet", ColumnMapping({"sequence": "1"})),
            spark,
        )


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
    source = TableSource(str(tmp_path / "source"), "parquet", ColumnMapping(columns))
    spark.sql("SELECT 'orders.a' AS subject, 1L AS n").write.parquet(source.location)
    opened = opened_stream(tmp_path)
    with pytest.raises(UsageError, match=said):
        ingest(opened, source, spark)
    assert not (Path(opened.root) / "_retention" / "ingest").exists(), "no query was started"


def test_a_source_that_is_not_there_is_a_usage_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"source is not a Delta table; nothing was read"):
        ingest(opened_stream(tmp_path), TableSource(str(tmp_path / "source")), spark)


def test_a_delta_table_is_read_as_delta_means_it_whatever_the_session_has_set(
    spark: SparkSession, tmp_path: Path
) -> None:
    def sql(text: str) -> None:
        spark.sql(text.replace("$", f"delta.`{tmp_path / 'a table'}`"))

    sql(
        "CREATE TABLE $ (n bigint, at timestamp, day string) USING delta PARTITIONED BY (at, day) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    sql("INSERT INTO $ SELECT id, timestamp'2026-01-02 03:04:05.678Z', 'a b/%é' FROM range(6)")
    sql("ALTER TABLE $ RENAME COLUMN n TO m")
    sql("DELETE FROM $ WHERE m < 2")
    columns = {"subject": "concat('orders.', m)", "payload": "day", "time": "at"}
    opened, source = (
        opened_stream(tmp_path),
        TableSource(str(tmp_path / "a table"), "delta", ColumnMapping(columns)),
    )
    cluster = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "false"}
    for name, value in cluster.items():
        spark.conf.set(name, value)
    try:
        assert ingest(opened, source, spark).messages == 4
        assert {name: spark.conf.get(name) for name in cluster} == cluster
    finally:
        for name in cluster:
            spark.conf.unset(name)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = store_of(opened).rows()
    assert sorted(rows["subject"].to_pylist()) == [f"orders.{n}" for n in range(2, 6)]
    assert {*rows["payload"].to_pylist()} == {"a b/%é".encode()}
    assert {*rows["ts_ns"].to_pylist()} == {1_767_323_045_678_000_000}
    sql("DELETE FROM $ WHERE m = 2")
    sql("INSERT INTO $ VALUES (9, timestamp'2026-01-02 03:04:05.678Z', 'x')")
    sql("OPTIMIZE $")
    assert ingest(opened, source, spark).messages == 1


def test_files_come_once_whatever_their_names_and_times(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    names = ["x[1]", "g?h", "{k}", "e#f", "c%20d", "a b", "b:c", "s*r", "ü", "l=m"]
    for at, name in enumerate(names):
        folder = files / "code=007" / f"{at % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps({"what": name}) + "\n")
        os.utime(folder / f"{name}.json", (at * 10**8, at * 10**8))
    columns = {"subject": "concat('orders.', code)", "payload": "what"}
    opened, source = (
        opened_stream(tmp_path),
        TableSource(str(files), "json", ColumnMapping(columns)),
    )
    assert ingest(opened, source, spark).messages == len(names)
    assert sorted(store_of(opened).rows()["payload"].to_pylist()) == sorted(
        name.encode() for name in names
    )
    assert {*store_of(opened).rows()["subject"].to_pylist()} == {"orders.007"}
    (files / "code=010").mkdir()
    (files / "code=010" / "new.json").write_text('{"what": "later", "more": 1}\n')
    with (files / "code=007" / "0" / "x[1].json").open("a") as sink:
        sink.write('{"what": "end"}\n')
    assert ingest(opened, source, spark).messages == 2
    assert store_of(opened).rows()["subject"].to_pylist()[-1] == "orders.010"
    reader = SparkReader(spark, opened, lambda rows: rows)
    listed = {(file.path, file.length) for file in reader.listing(str(files))}
    assert listed == {(file.path, file.length) for file in list_files(str(files))}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.json",
            '{"what": "1"}\n{"what": "2"',
            "line 2 cannot be read as json: not a complete JSON value (Expecting ',' delimiter at "
            'character 13): {"what": "2"',
        ),
        (
            "a.json",
            '{"what": "1"}\n\n[1]x\n',
            "line 3 cannot be read as json: not a complete JSON value",
        ),
        (
            "a.csv",
            "1,2\n3\n",
            "line 2 cannot be read as csv: it has 1 column, and 2 were expected: 3",
        ),
        ("a.parquet", "PAR1 and no more", "cannot be read as parquet: "),
    ],
)
def test_a_damaged_file_is_refused_by_its_name_whatever_the_session_passes_over(
    spark: SparkSession, tmp_path: Path, name: str, content: str, said: str
) -> None:
    files, kind = tmp_path / "files", name.partition(".")[2]
    files.mkdir()
    (files / name).write_text(content)
    what = "_c0" if kind == "csv" else "what"
    columns = {"subject": "'orders.a'", "payload": what}
    opened = opened_stream(tmp_path)
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(DamagedError) as refused:
            ingest(opened, TableSource(str(files), kind, ColumnMapping(columns)), spark)
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    assert str(files / name) in str(refused.value)
    assert said in str(refused.value)
    assert not opened.store.exists() or not len(store_of(opened).rows())
    assert not list(Path(opened.root).glob("_retention/ingest/*/*.taken"))


@pytest.mark.thorough
def test_a_type_that_was_fixed_stays_and_a_column_may_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    files, opened = tmp_path / "files", opened_stream(tmp_path)
    files.mkdir()
    source = TableSource(
        str(files),
        "json",
        ColumnMapping({"subject": "'orders.a'", "payload": "CAST(n AS STRING)"}),
    )
    (files / "a.json").write_text('{"n": 1}\n')
    assert ingest(opened, source, spark).messages == 1
    (files / "b.json").write_text('{"n": 2.5}\n')
    with pytest.raises(
        DamagedError,
        match=r"b.json, line 1 cannot be read as json: its n is not of type bigint: 2.5",
    ):
        ingest(opened, source, spark)
    (files / "b.json").write_text('{"n": 2, "m": "x"}\n')
    assert ingest(opened, source, spark).messages == 1
    later = TableSource(
        source.location,
        "json",
        ColumnMapping({"subject": "'orders.a'", "payload": "coalesce(m, 'none')"}),
    )
    (files / "c.json").write_text('{"n": 3}\n')
    assert ingest(opened, later, spark).messages == 1
    assert store_of(opened).rows()["payload"].to_pylist() == [b"1", b"2", b"none"]


def test_a_log_that_only_spark_reaches_is_copied(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(tmp_path / "table", pa.table({"n": [number]}), mode="append")
    DeltaTable(tmp_path / "table").create_checkpoint()
    write_deltalake(tmp_path / "table", pa.table({"n": [3]}), mode="append")
    reader = SparkReader(spark, opened_stream(tmp_path), lambda rows: rows)
    whole = DeltaLog(str(tmp_path / "table")).state(3)
    for after, missing in ((None, True), (1, False)):
        copy = tmp_path / f"copy-{after}"
        reader.log(str(tmp_path / "table"), after, str(copy))
        log = DeltaLog(str(copy))
        assert (log.newest(), log.missing(0, 3)) == (3, missing)
        assert log.state(3).live.keys() == whole.live.keys()
    with pytest.raises(UsageError, match="Spark cannot list it"):
        reader.log(str(tmp_path / "none"), None, str(tmp_path / "x"))


@pytest.mark.thorough
def test_a_source_of_many_files_comes_in_several_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_FILES", 2)
    source = TableSource(str(tmp_path / "source"), "parquet")
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
    document = json.loads(report.read_text())
    assert document["messages"] == 1
    assert wrong("report.ingest.schema.json", document) == []
    assert job.main() == 0
    assert json.loads(report.read_text())["messages"] == 0
    monkeypatch.setattr(sys, "argv", arguments)
    assert job.main() == UsageError.exit_code
    assert "give one --stream" in capsys.readouterr().err
