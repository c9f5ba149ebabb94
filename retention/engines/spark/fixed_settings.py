"""Session settings that give reads and expressions one meaning, independent of a cluster's settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from retention.engines.spark.connect import setting_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.json.enablePartialResults": "false",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.legacy.castComplexTypesToString.enabled": "false",
    "spark.sql.legacy.json.allowEmptyString.enabled": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.orc.mergeSchema": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Setting → value: Spark's defaults, except the time zone, and Parquet nanoseconds as integers."""


def fixed_settings(session: SparkSession) -> AbstractContextManager[None]:
    """Apply the `FIXED` settings to a session during the block, and restore its own afterwards."""
    return settings_of_block(session, FIXED)


@contextmanager
def settings_of_block(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Apply given settings to a session during the block, and restore its own afterwards."""
    known = {name: setting_of(session, name) for name in wanted}
    before = {name: value for name, value in known.items() if not _is(value, wanted[name])}
    try:
        for name in before:
            session.conf.set(name, wanted[name])
        yield
    finally:
        for name, value in before.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)


def _is(value: str | None, wanted: str) -> bool:
    return value is not None and value.lower() == wanted.lower()
