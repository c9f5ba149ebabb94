"""Streaming queries: those that append to a log, by either of the two ways, and queries that Spark gives up early."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.errors import StreamingQueryException

import retention
from retention.api.log import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Way = Literal["foreachBatch", "format"]
WAYS: tuple[Way, ...] = ("foreachBatch", "format")
GIVEN_UP = "Python worker failed to connect back"
STARTS = 5


def append_stream(way: Way, rows: DataFrame, log: Log, checkpoint: Path) -> None:
    """Append the rows that arrived since the query's last batch, as the writer `query`."""
    if way == "foreachBatch":
        writer = rows.writeStream.foreachBatch(log.sink("query"))
    else:
        retention.register(rows.sparkSession)
        place = Path(log.opened.warehouse, "retention.yaml")
        writer = rows.writeStream.format("retention").options(config=str(place), writer="query")
        writer = writer.option("stream", log.name)
    run_query(writer.option("checkpointLocation", str(checkpoint)))


def run_query(writer: DataStreamWriter, place: str | None = None) -> None:
    """Run a query up to the end of its source, started again if Spark gave it up before it began.

    Spark waits ten seconds for the Python of a source, and a busy machine needs longer; no setting changes that
    (`PythonWorkerFactory`). Such a query has read nothing.
    """
    for _ in range(STARTS):
        try:
            writer.trigger(availableNow=True).start(place).awaitTermination()
        except StreamingQueryException as error:
            if GIVEN_UP not in str(error):
                raise
        else:
            return
    raise AssertionError(f"{GIVEN_UP}: {STARTS} times")
