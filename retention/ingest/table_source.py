"""Taking rows without sequences out of another table, each of them once, however often that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.core.subjects import path_name
from retention.dialects import iggy, jetstream
from retention.errors import RefusedError, UsageError
from retention.ingest.append import Appended
from retention.ingest.dataframe import append_frame, micro_batch
from retention.storage import files

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


@dataclass(frozen=True)
class Ingested:
    """The numbers of what was new in the source."""

    stream: str
    source: str
    batches: int
    messages: int
    bytes: int


def ingest(opened: OpenedStream, source: Source, spark: SparkSession) -> Ingested:
    """Append what a source holds that was not taken before, in one commit or a few.

    How far the source was read is kept beside the stream, as the checkpoint of a streaming query; the numbers of its
    batches are kept in the stream's own commits, so that a run that was stopped half-way repeats nothing.

    Raises:
        UsageError: the source has no subject or payload, or a row cannot be a message.
        RefusedError: rows of this source are in the stream, but the checkpoint is gone.
        BusyError: the append lease is held, or rivals kept committing first.
    """
    writer = f"ingest/{source.location}"
    checkpoint = files.join(opened.root, "_retention", "ingest", path_name(source.location))
    _check_checkpoint(opened, writer, checkpoint)
    done: list[Appended] = []
    failed: list[Exception] = []

    def append_batch(frame: DataFrame, batch: int) -> None:
        try:
            done.append(append_frame(opened, frame, micro_batch(frame, writer, batch)))
        except Exception as error:
            failed.append(error)
            raise

    query = _selected(source, opened.dialect.columns, spark).writeStream.foreachBatch(append_batch)
    at = checkpoint.replace("s3://", "s3a://", 1)
    started = query.option("checkpointLocation", at).trigger(availableNow=True).start()
    try:
        started.awaitTermination()
    except Exception as error:
        # Spark's own error would hide which of ours it was.
        raise (failed or [error])[0] from None
    new = [appended for appended in done if not appended.duplicate]
    messages, size = (
        sum(appended.messages for appended in new),
        sum(appended.bytes for appended in new),
    )
    return Ingested(opened.name, source.location, len(new), messages, size)


def _selected(source: Source, columns: Sequence[str], spark: SparkSession) -> DataFrame:
    unknown = source.columns.keys() - set(columns)
    if unknown:
        raise UsageError(f"{sorted(unknown)[0]}: no such column; there are {', '.join(columns)}")
    read = spark.read.format(source.format).load(source.location)
    stream = spark.readStream.format(source.format)
    if source.format != "delta":
        # Delta's stream knows its schema, and refuses to be told one.
        stream = stream.schema(read.schema)
    given = {name: f"`{name}`" for name in columns if name in read.columns} | dict(source.columns)
    expressions = [f"{expression} AS {name}" for name, expression in given.items()]
    return stream.load(source.location).selectExpr(*expressions)


def _check_checkpoint(opened: OpenedStream, writer: str, checkpoint: str) -> None:
    known = opened.store.exists() and writer in opened.store.snapshot().counters.batches
    if known and files.read_bytes(files.join(checkpoint, "metadata")) is None:
        raise RefusedError(
            f"{opened.name}: rows of {writer.removeprefix('ingest/')} were taken in before, but how far is lost with "
            f"{checkpoint}; nothing was read, so that none comes twice; restore that folder from a copy, or append the "
            "missing rows from a table that holds only them"
        )
