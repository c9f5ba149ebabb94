"""SQL functions of ours in a session of the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.core.subject_tokens import SQL_FUNCTIONS
from retention.engines.spark.session import refuse_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_functions(spark: SparkSession) -> None:
    """Give a session the SQL functions `subject_token(key)` and `subject_key(token)`, which replace any of these names.

    `subject_token` takes texts, numbers and bytes and gives a text; `subject_key` takes a text and gives bytes. They
    last as long as the session.

    Raises:
        UsageError: the session was stopped.
    """
    refuse_stopped(spark)
    for name, (given, result, sql) in SQL_FUNCTIONS.items():
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {name}(given {given}) RETURNS {result} RETURN {sql.format('given')}"
        )
