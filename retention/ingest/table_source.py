"""Taking rows without sequences out of another table, each of them once, however often that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.subjects import path_name
from retention.dialects import iggy, jetstream
from retention.dialects.dialect import Dialect
from retention.engines.spark.connect import refuse_connect
from retention.errors import RefusedError, UsageError
from retention.ingest.append import Appended
from retention.ingest.dataframe import append_frame, micro_batch
from retention.storage import files
from retention.storage.places import place_of, spellings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS_HELP = f"{', '.join(jetstream.COLUMNS)}; of a topic {', '.join(iggy.COLUMNS)}"


@dataclass(frozen=True)
class Source:
    """A table that only grows."""

    location: str
    format: str = "delta"
    """A format that Spark can read as a stream: delta, parquet, json, csv, orc."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """A column of the stream's or topic's dialect → the SQL expression for it; by default the source's column
    of that name."""
    times: AcceptedTimes = ALL_TIMES
    """The instants that its rows may give."""


@dataclass(frozen=True)
class Ingested:
    """The numbers of what was new in the source."""

    stream: str
    source: str
    batches: int
    messages: int
    bytes: int


def check_names(columns: Mapping[str, str], dialect: Dialect) -> None:
    """Refuse expressions for columns that a log does not have, and names without an expression.

    Raises:
        UsageError: there is one.
    """
    for name, expression in columns.items():
        if name not in dialect.columns:
            raise UsageError(f"{name}: no such column; there are {', '.join(dialect.columns)}")
        if not expression.strip():
            raise UsageError(f"--column {name}: it needs an SQL expression; give {name}=SQL")


def ingest(opened: OpenedStream, source: Source, spark: SparkSession) -> Ingested:
    """Append what a source holds that was not taken before, in one commit or a few.

    How far the source was read is kept beside the stream, as the checkpoint of a streaming query; the numbers of its
    batches are kept in the stream's own commits, so that a run that was stopped half-way repeats nothing.

    Raises:
        UsageError: the source cannot be opened, a column is missing or of another type, or a row cannot be a message.
        RefusedError: rows of this source are in the stream, but the checkpoint is gone.
        BusyError: the append lease is held, or rivals kept committing first.
    """
    check_names(source.columns, opened.dialect)
    refuse_connect(
        spark,
        f"{opened.name}: ingest",
        "it counts what its streaming query took, which runs on the server; run `python -m jobs.ingest` without "
        "SPARK_REMOTE, or hand a query of your own to the stream's sink",
    )
    source = replace(source, location=_known_place(opened, source.location))
    writer = _writer(source.location)
    checkpoint = files.join(opened.root, "_retention", "ingest", path_name(source.location))
    _check_checkpoint(opened, writer, checkpoint)
    rows = _selected(source, opened.dialect, spark)
    done: list[Appended] = []
    failed: list[Exception] = []

    def append_batch(frame: DataFrame, batch: int) -> None:
        try:
            done.append(
                append_frame(opened, frame, micro_batch(frame, writer, batch), source.times)
            )
        except Exception as error:
            failed.append(error)
            raise

    query = rows.writeStream.foreachBatch(append_batch)
    at = checkpoint.replace("s3://", "s3a://", 1)
    started = query.option("checkpointLocation", at).trigger(availableNow=True).start()
    try:
        started.awaitTermination()
    except Exception as error:
        from retention.engines.spark.failures import failure_of

        # Spark's own error would hide which of ours it was.
        raise (failed or [failure_of(error) or error])[0] from None
    new = [appended for appended in done if not appended.duplicate]
    messages, size = (
        sum(appended.messages for appended in new),
        sum(appended.bytes for appended in new),
    )
    return Ingested(opened.name, source.location, len(new), messages, size)


def _selected(source: Source, dialect: Dialect, spark: SparkSession) -> DataFrame:
    from retention.engines.spark.tables import refuse_unfit, streamed

    place = source.location
    frame = streamed(spark, place, source.format, dialect.columns, source.columns)
    refuse_unfit(frame, place, dialect)
    return frame


def _known_place(opened: OpenedStream, location: str) -> str:
    """A source's place, spelt as it was when rows of it were taken before: how far is kept under that name."""
    ways = spellings(place_of(location))
    known = opened.store.snapshot().counters.batches if opened.store.exists() else {}
    return next((way for way in ways if _writer(way) in known), location)


def _writer(location: str) -> str:
    return f"ingest/{location}"


def _check_checkpoint(opened: OpenedStream, writer: str, checkpoint: str) -> None:
    known = opened.store.exists() and writer in opened.store.snapshot().counters.batches
    if known and files.read_bytes(files.join(checkpoint, "metadata")) is None:
        raise RefusedError(
            f"{opened.name}: rows of {writer.removeprefix('ingest/')} were taken in before, but how far is lost with "
            f"{checkpoint}; nothing was read, so that none comes twice; restore that folder from a copy, or append the "
            "missing rows from a table that holds only them"
        )
