"""SQL functions of this package in a caller's session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.core.subject_tokens import SQL_FUNCTIONS
from retention.engines.spark.session import refuse_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_functions(spark: SparkSession) -> None:
    """Register the SQL functions `subject_token(key)` and `subject_key(token)` in a session, replacing others.

    `subject_token` takes strings, numbers and bytes and returns a string; `subject_key` takes a string and returns
    bytes. They last as long as the session.

    Raises:
        UsageError: the session was stopped.
    """
    refuse_stopped(spark)
    for name, (given, result, sql) in SQL_FUNCTIONS.items():
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {name}(given {given}) RETURNS {result} RETURN {sql.format('given')}"
        )
