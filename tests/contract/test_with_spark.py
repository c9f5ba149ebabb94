"""Reads and writes of our tables by a real Spark with Delta."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from retention.core.read_count import ReadCount
from retention.errors import ForeignRowsError, StalePlanError, UsageError
from retention.formats.ack.sources import open_log
from tests.contract.conftest import Stage
from tests.contract.streams import append, latest, live, removing, rows, sequences, staged
from tests.support.frames import assert_seqs
from tests.support.mirrors import mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def place(tmp_path: Path) -> Stage:
    made = Stage("delta", tmp_path / "streams" / "ORDERS")
    made.open().create()
    return made


def sql(spark: SparkSession, place: Stage, text: str) -> None:
    spark.sql(text.format(table=f"delta.`{place.root / 'messages'}`"))


def test_spark_reads_what_was_committed(stage: Stage, spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    from retention.schemas.messages import MESSAGES

    store = stage.open()
    store.create()
    append(store, range(1, 11))
    append(store, range(11, 21), segment=11)
    snapshot, files = latest(store)
    store.commit(removing(files.slice(0, 1), staged(store, rows(range(4, 11)))), snapshot)
    messages = str(stage.root / "messages")
    if stage.format == "delta":
        frame = spark.read.format("delta").load(messages)
    else:
        frame = spark.read.schema(from_arrow_schema(MESSAGES)).parquet(messages)
    assert_seqs(frame, range(4, 21))
    assert_seqs(frame.where("segment = 11 and ts_ns >= 15000000000"), range(15, 21))
    assert_seqs(frame.where("time = timestamp_seconds(7)"), [7])
    assert {row.partition for row in frame.select("partition").distinct().collect()} == {0}


def test_rows_that_spark_appends_are_taken_in(place: Stage, spark: SparkSession) -> None:
    store = place.open()
    append(store, range(1, 11))
    mirror(spark, place.table, range(11, 21), segment=11)
    snapshot = store.snapshot()
    found = store.inventory(snapshot)
    assert found.read.files == 1
    assert (found.counters.next_seq[0], found.counters.open_base[0]) == (21, 11)
    again = place.open()
    assert again.inventory(again.snapshot()).read == ReadCount()
    store.commit(removing(found.files.slice(1)), snapshot)
    assert sequences(store) == list(range(1, 11))
    assert_seqs(spark.read.format("delta").load(str(place.root / "messages")), range(1, 11))


def test_rows_without_a_sequence_are_refused(place: Stage, spark: SparkSession) -> None:
    append(place.open(), range(1, 11))
    sql(spark, place, "ALTER TABLE {table} ALTER COLUMN size DROP NOT NULL")
    mirror(spark, place.table, range(11, 21), segment=11, size="cast(null as bigint)")
    store = place.open()
    with pytest.raises(ForeignRowsError, match="size"):
        store.inventory(store.snapshot())


@pytest.mark.thorough
def test_files_under_deletion_vectors_of_spark_are_read_and_removed(
    place: Stage, spark: SparkSession
) -> None:
    store = place.open()
    append(store, range(1, 11))
    append(store, range(11, 21), segment=11)
    snapshot, files = latest(store)
    sql(spark, place, "ALTER TABLE {table} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    sql(spark, place, "DELETE FROM {table} WHERE seq = 15")
    assert len(store.snapshot().handle.vectors) == 1
    store.commit(removing(files.slice(0, 1)), snapshot)
    kept = [seq for seq in range(11, 21) if seq != 15]
    assert sequences(place.open()) == kept
    assert_seqs(spark.read.format("delta").load(str(place.root / "messages")), kept)
    found = place.open()
    described = found.inventory(found.snapshot()).files
    assert described["messages"].to_pylist() == [9]
    found.commit(removing(described), found.snapshot())
    assert spark.read.format("delta").load(str(place.root / "messages")).count() == 0


@pytest.mark.thorough
def test_a_removal_prepared_before_a_deletion_vector_is_refused(
    place: Stage, spark: SparkSession
) -> None:
    store = place.open()
    append(store, range(1, 11))
    sql(spark, place, "ALTER TABLE {table} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    snapshot, files = latest(store)
    sql(spark, place, "DELETE FROM {table} WHERE seq = 5")
    with pytest.raises(StalePlanError):
        store.commit(removing(files, staged(store, rows(range(3, 11)))), snapshot)
    seen = store.snapshot()
    sql(spark, place, "DELETE FROM {table} WHERE seq = 6")
    assert store.snapshot().files["path"] != seen.files["path"]
    with pytest.raises(StalePlanError):
        store.commit(removing(files), seen)
    assert spark.read.format("delta").load(str(place.root / "messages")).count() == 8


@pytest.mark.thorough
def test_what_spark_compacted_makes_a_plan_stale_and_keeps_every_row(
    place: Stage, spark: SparkSession
) -> None:
    store = place.open()
    append(store, range(1, 6))
    append(store, range(6, 11))
    snapshot, files = latest(store)
    sql(spark, place, "OPTIMIZE {table}")
    with pytest.raises(StalePlanError):
        store.commit(removing(files.slice(0, 1)), snapshot)
    assert sequences(place.open()) == list(range(1, 11))
    assert live(place.open()).num_rows == 1
    assert place.open().snapshot().counters.next_seq[0] == 11


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_log_of_acks_with_a_deletion_vector_is_refused(
    tmp_path: Path, spark: SparkSession
) -> None:
    log = tmp_path / "log"
    said = [
        {"reply": f"$JS.ACK.ORDERS.all.1.{seq}.{seq}.1790000000000000000.0"} for seq in (1, 2, 3)
    ]
    vectors = {"delta.enableDeletionVectors": "true"}
    write_deltalake(log, pa.Table.from_pylist(said), configuration=vectors)
    assert open_log(str(log)).rows == len(said)
    text = "DELETE FROM {table} WHERE reply LIKE '%.2.2.%'"
    spark.sql(text.format(table=f"delta.`{log}`"))
    with pytest.raises(UsageError, match="rows of it are deleted"):
        open_log(str(log))
