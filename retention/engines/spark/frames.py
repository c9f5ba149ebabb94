"""Arrow tables as Spark DataFrames of the caller's session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from retention.engines.spark.ddl import ddl_of
from retention.engines.spark.session import refuse_stopped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def spark_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a table with its names and types, all columns nullable.

    Raises:
        UsageError: the session was stopped.
    """
    refuse_stopped(spark)
    if not table.num_rows:
        return spark.createDataFrame([], ddl_of(table.schema))
    nullable = [field.with_nullable(nullable=True).remove_metadata() for field in table.schema]
    return spark.createDataFrame(table.cast(pa.schema(nullable)))
