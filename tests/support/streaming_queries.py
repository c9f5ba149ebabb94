"""Streaming queries that append to a log, by either of the two ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import retention
from retention.api.log import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Way = Literal["foreachBatch", "format"]
WAYS: tuple[Way, ...] = ("foreachBatch", "format")


def append_stream(way: Way, rows: DataFrame, log: Log, checkpoint: Path) -> None:
    """Append the rows that arrived since the query's last batch, as the writer `query`."""
    if way == "foreachBatch":
        writer = rows.writeStream.foreachBatch(log.sink("query"))
    else:
        retention.register(rows.sparkSession)
        place = Path(log.opened.warehouse, "retention.yaml")
        writer = rows.writeStream.format("retention").options(config=str(place), writer="query")
        writer = writer.option("stream", log.name)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()
