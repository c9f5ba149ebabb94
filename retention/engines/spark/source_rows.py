"""Rows of chosen files of a source, read by Spark with fixed columns and options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from retention.engines.spark.s3a import for_spark, reaching
from retention.engines.spark.source_columns import reason_of
from retention.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GLOBBED = frozenset("{}[]*?\\")
_KEPT = frozenset("/-_.!~'()*,;:$&+=@")
"""The characters, besides letters and digits, that Java does not escape in the path of a URI."""
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "json": {"mode": "FAILFAST"},
    "csv": {"mode": "FAILFAST", "columnPruning": "false"},
    "parquet": {
        "mergeSchema": "false",
        "datetimeRebaseMode": "CORRECTED",
        "int96RebaseMode": "CORRECTED",
    },
    "orc": {"mergeSchema": "false"},
}
_OF_ALL = {
    "recursiveFileLookup": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
_DIGITS = 20
"""The number of digits of a version in the name of a Delta log file."""
_FILE, _PLACE = "__retention_file", "__retention_place"


@dataclass(frozen=True)
class FileToRead:
    """A file, and the partition values from its directories."""

    place: str
    """A path, or a URI."""
    values: tuple[str | None, ...] = ()
    """The string value of each partition column."""
    width: int | None = None
    """For CSV, the number of columns of its first line; None for all columns."""


def inferred_columns(spark: SparkSession, format_: str, places: Iterable[str]) -> dict[str, Any]:
    """The union of the columns of files, as JSON of a Spark schema.

    Raises:
        PySparkException, Py4JError: a file cannot be read, or files contradict each other.
    """
    # Invalid records have no columns; the following read refuses them by file and line.
    lenient = {"mode": "PERMISSIVE"} if format_ in ("json", "csv") else {"mergeSchema": "true"}
    reader = spark.read.format(format_).options(**_OF_ALL, **{**_OPTIONS[format_], **lenient})
    schema: dict[str, Any] = reader.load([_escaped(place) for place in places]).schema.jsonValue()
    return schema


def file_rows(
    spark: SparkSession,
    format_: str,
    columns: Mapping[str, Any],
    partitions: Mapping[str, str],
    files: Sequence[FileToRead],
) -> DataFrame:
    """The rows of files of a directory, with the columns of the source.

    Args:
        spark: the session.
        format_: the format of the files.
        columns: JSON of the Spark schema of their own columns.
        partitions: name → SQL type of each column from their directories.
        files: at least one file.
    """
    schema = T.StructType.fromJson(dict(columns))
    frames = [
        _read(spark, format_, schema, [file for file in files if file.width == width])
        for width in dict.fromkeys(file.width for file in files)
    ]
    if partitions:
        frames = [rows.withColumn(_FILE, F.col("_metadata.file_path")) for rows in frames]
    rows = reduce(_together, frames)
    return _with_partitions(spark, rows, schema.names, partitions, files) if partitions else rows


def delta_rows(spark: SparkSession, place: str) -> DataFrame:
    """The rows of a Delta table."""
    with reaching(place):
        return spark.read.format("delta").load(for_spark(place))


def listed_files(spark: SparkSession, location: str) -> list[tuple[str, int, int]]:
    """Every file below a location that only Spark can reach: URI, length and time in milliseconds since the epoch.

    Raises:
        AnalysisException: the location has no files.
    """
    files = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(_escaped(location))
    )
    rows = files.selectExpr("path", "length", "unix_millis(modificationTime) AS at").toArrow()
    return list(zip(*(rows[name].to_pylist() for name in rows.schema.names), strict=True))


def copied_log(spark: SparkSession, location: str, after: int | None) -> list[tuple[str, bytes]]:
    """Name and content of the files of a Delta log that only Spark can reach.

    Args:
        spark: the session.
        location: the log's location.
        after: the first needed version; None for the version of the newest checkpoint.

    Raises:
        UsageError: Spark cannot list it.
    """
    reader = spark.read.format("binaryFile").option("pathGlobFilter", "[0-9]*.*")
    with _listing(location):
        log = reader.load(_escaped(location))
        named = log.selectExpr("element_at(split(path, '/'), -1) AS name", "content")
        names = [row.name for row in named.select("name").collect()]
    newest = max((name[:_DIGITS] for name in names if ".checkpoint." in name), default="0")
    first = newest if after is None else min(newest, f"{after:0{_DIGITS}d}")
    rows = named.where(F.col("name") >= first).toArrow()
    return list(zip(*(rows[name].to_pylist() for name in rows.schema.names), strict=True))


@contextmanager
def _listing(location: str) -> Iterator[None]:
    """A context around listing a location with Spark.

    Raises:
        UsageError: Spark cannot list it.
    """
    try:
        yield
    except AnalysisException as error:
        raise UsageError(
            f"{location}: Spark cannot list it ({reason_of(error)}); nothing was read; name the directory of a table "
            "and, with --source-format, what it is"
        ) from error


def _read(
    spark: SparkSession, format_: str, schema: T.StructType, files: Sequence[FileToRead]
) -> DataFrame:
    """The rows of files of one width."""
    fields = T.StructType(schema.fields[: files[0].width])
    reader = spark.read.format(format_).schema(fields).options(**_OF_ALL, **_OPTIONS[format_])
    return reader.load([_escaped(file.place) for file in files])


def _together(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.unionByName(right, allowMissingColumns=True)


def _with_partitions(
    spark: SparkSession,
    rows: DataFrame,
    names: Sequence[str],
    partitions: Mapping[str, str],
    files: Sequence[FileToRead],
) -> DataFrame:
    texts = list(zip(*(file.values for file in files), strict=True))
    places = pa.array([uri_of(for_spark(file.place)) for file in files])
    arrays = [places, *(pa.array(column, pa.string()) for column in texts)]
    keys = [f"__retention_{at}" for at in range(len(partitions))]
    known = spark.createDataFrame(pa.table(arrays, names=[_PLACE, *keys]))
    joined = rows.join(F.broadcast(known), rows[_FILE] == known[_PLACE], "left")
    lost = F.raise_error(F.concat(F.lit("no directory is known of the file "), F.col(_FILE)))
    checked = joined.where(
        F.when(F.col(_PLACE).isNull(), lost.cast("boolean")).otherwise(F.expr("true"))
    )
    given = [
        F.col(key).cast(kind).alias(name)
        for key, (name, kind) in zip(keys, partitions.items(), strict=True)
    ]
    kept = [name.replace("`", "``") for name in names if name not in partitions]
    return checked.select(*[F.col(f"`{name}`") for name in kept], *given)


def uri_of(place: str) -> str:
    """A place, spelled as in Spark's column `_metadata.file_path`.

    >>> uri_of("/a b/c%20d[1]=ü.json"), uri_of("s3a://bucket/a b.json")
    ('file:/a%20b/c%2520d%5B1%5D=ü.json', 's3a://bucket/a%20b.json')
    """
    scheme, separator, rest = place.rpartition("://")
    head = f"{scheme}://" if separator else "file:"
    return head + "".join(_encoded(letter) for letter in rest)


def _encoded(letter: str) -> str:
    if (
        letter in _KEPT
        or letter.isalnum()
        or (not letter.isascii() and letter.isprintable() and not letter.isspace())
    ):
        return letter
    return "".join(f"%{byte:02X}" for byte in letter.encode())


def _escaped(place: str) -> str:
    """A place with Hadoop's glob characters escaped."""
    return "".join(f"\\{letter}" if letter in _GLOBBED else letter for letter in for_spark(place))
