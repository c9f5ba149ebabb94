from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from retention.errors import UsageError
from retention.schemas.messages import MESSAGES
from tests.support.frames import assert_rows
from tests.support.sandboxes import ORDERS, lines, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def naive_times(spark: SparkSession) -> Iterator[None]:
    """A session in which plain `timestamp` has no time zone."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    yield
    spark.conf.unset("spark.sql.timestampType")


@pytest.mark.usefixtures("naive_times")
@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_frame_has_the_live_messages(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    stream = opened(tmp_path, {**ORDERS, "format": table_format}).stream("ORDERS")
    assert stream.read(spark).count() == 0
    stream.publish(lines(240))
    stream.plan().apply()
    frame = stream.read(spark)
    assert frame.columns == MESSAGES.names
    wanted = pa.concat_tables(stream.messages())
    assert_rows(frame, wanted.select(frame.columns))


def test_files_that_no_version_names_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(5))
    (live,) = (tmp_path / "streams" / "ORDERS" / "messages").rglob("*.parquet")
    live.with_name("leftover.parquet").write_bytes(live.read_bytes())
    assert stream.read(spark).count() == 5


@pytest.mark.parametrize("setting", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_a_session_that_passes_over_files_loses_no_message(
    spark: SparkSession, tmp_path: Path, setting: str
) -> None:
    streams = {}
    for table_format in ("delta", "parquet"):
        stream = opened(tmp_path / table_format, {**ORDERS, "format": table_format}).stream(
            "ORDERS"
        )
        stream.publish(lines(5))
        streams[table_format] = stream
    spark.conf.set(f"spark.sql.files.{setting}", "true")
    try:
        with pytest.raises(UsageError) as refused:
            streams["delta"].read(spark)
        frame = streams["parquet"].read(spark)
        (live,) = (tmp_path / "parquet/streams/ORDERS/messages").rglob("*.parquet")
        live.write_bytes(live.read_bytes()[:100])
        with pytest.raises(Exception, match="FAILED_READ_FILE"):
            frame.collect()
    finally:
        spark.conf.unset(f"spark.sql.files.{setting}")
    name = f"spark.sql.files.{setting}"
    assert str(refused.value) == (
        f"ORDERS: {name} is on in this Spark session, so that files which are damaged or gone would be passed over in "
        f'silence; nothing was read; spark.conf.set("{name}", "false") and read again'
    )


def test_frames_are_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    frame = spark.createDataFrame(
        [("orders.a", b"one"), ("orders.b", b"two")], ["subject", "payload"]
    )
    assert stream.append(frame, batch_id=1).messages == 2
    assert stream.append(frame, batch_id=1).duplicate
    stream.sink("query")(frame, 0)
    stream.sink("query")(frame, 0)
    assert stream.state().messages == 4
