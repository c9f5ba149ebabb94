"""A stream's live messages as a Spark DataFrame, for every table format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.engines.spark.connect import setting_of
from retention.engines.spark.ddl import SPARK_NAMES, ddl_of
from retention.engines.spark.s3a import for_spark, reaching
from retention.engines.spark.session import refuse_stopped
from retention.errors import UsageError
from retention.schemas.messages import FILE_COLUMNS, MESSAGES, PARTITION_COLUMNS
from retention.storage import files
from retention.stores.row_tombstones import has_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STRICT = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
}
"""Options that make a Parquet reader ignore a cluster's settings."""
_LENIENT = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
"""Settings that silently skip files, and that Delta's reader has no options for."""
_FROM_PATH = "CAST(regexp_extract(_metadata.file_path, '/{0}=([0-9]+)/', 1) AS {1}) AS {0}"


def read_frame(opened: OpenedStream, spark: SparkSession) -> DataFrame:
    """The current live messages, columns of `MESSAGES`; the session is not changed.

    Raises:
        UsageError: the session was stopped, or silently skips unreadable files.
    """
    refuse_stopped(spark)
    if not opened.table.exists():
        return spark.createDataFrame([], ddl_of(MESSAGES))
    source = opened.table_format.spark_source
    if source is None:
        return _read_files(opened, spark)
    if has_records(opened.layout):
        # Opening the table refuses row tombstones of earlier builds.
        opened.store.snapshot()
    return _read_table(opened, spark, source)


def read_seqs(opened: OpenedStream, spark: SparkSession, seqs: np.ndarray) -> DataFrame:
    """The live messages with one of these sequences, columns of `MESSAGES`; files without any are skipped."""
    rows = read_frame(opened, spark)
    if not len(seqs):
        return rows.where("false")
    wanted = spark.createDataFrame(pa.table({"seq": seqs}))
    within = rows.where(f"seq BETWEEN {seqs.min()} AND {seqs.max()}")
    return within.join(wanted, on="seq", how="left_semi").select(*MESSAGES.names)


def _read_table(opened: OpenedStream, spark: SparkSession, source: str) -> DataFrame:
    _refuse_lenient(opened, spark)
    location = for_spark(files.join(opened.root, "messages"))
    with reaching(location):
        rows = spark.read.format(source).load(location)
        return rows.select(*MESSAGES.names)


def _refuse_lenient(opened: OpenedStream, spark: SparkSession) -> None:
    for name in _LENIENT:
        if (setting_of(spark, name) or "false").lower() == "true":
            raise UsageError(
                f"{opened.name}: {name} is on in this Spark session, so that files which are damaged or gone would be "
                f'passed over in silence; nothing was read; spark.conf.set("{name}", "false") and read again'
            )


def _read_files(opened: OpenedStream, spark: SparkSession) -> DataFrame:
    """The rows of exactly the logged files; the directory may also have files that a run has not moved yet."""
    live = opened.store.data_files(opened.store.snapshot().files)
    if not live:
        return spark.createDataFrame([], ddl_of(MESSAGES))
    rows = (
        spark.read.options(**_STRICT)
        .schema(ddl_of(FILE_COLUMNS))
        .parquet(*(file.location for file in live))
    )
    keys = [
        _FROM_PATH.format(name, SPARK_NAMES[MESSAGES.field(name).type])
        for name in PARTITION_COLUMNS
    ]
    return rows.selectExpr(*keys, *FILE_COLUMNS.names)
