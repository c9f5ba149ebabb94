from __future__ import annotations

import pytest

from retention.engines.spark.source_failures import ReadFailure, read_failure

CUT = """org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///src/a%20b.parquet.  SQLSTATE: KD001
\tat org.apache.spark.sql
Caused by: java.lang.RuntimeException: a.parquet is not a Parquet file. SQLSTATE: XX000
"""
FOOTER = (
    "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file s3a://lake/x/cut.parquet. Could "
    "not read footer."
)
GONE = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/src/b.json. File does not exist."


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (
            CUT,
            ReadFailure("/src/a b.parquet", "a.parquet is not a Parquet file.", is_missing=False),
        ),
        (FOOTER, ReadFailure("s3://lake/x/cut.parquet", "", is_missing=False)),
        (GONE, ReadFailure("/src/b.json", "", is_missing=True)),
        ("[DIVIDE_BY_ZERO] Division by zero.", None),
    ],
    ids=["cut", "footer", "gone", "another"],
)
def test_the_file_that_spark_could_not_read_is_known(
    text: str, failure: ReadFailure | None
) -> None:
    assert read_failure(RuntimeError(text)) == failure
