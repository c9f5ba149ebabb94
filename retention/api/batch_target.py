"""The log to which a streaming query appends by the format `retention`, chosen by options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retention.api.log import Log
from retention.api.source_options import LOG_OPTIONS, log_of
from retention.core.accepted_times import AcceptedTimes, accepted_times
from retention.dialects.arriving_rows import ArrivingRows
from retention.engines.spark.data_source import BatchTarget
from retention.errors import UsageError
from retention.ingest.dataframe import append_blocks
from retention.ingest.idempotency import MicroBatch
from retention.layout.stored_blocks import StoredBlock
from retention.planners.scratch import shared_directory

_OPTIONS = (*LOG_OPTIONS, "writer", "any_time")
_OF_SPARK = ("checkpointlocation",)
_OF_THE_SINK = ("order_by", "where", "tombstone", "payload")
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True)
class LogTarget:
    """A log, and the writer whose batches it counts."""

    log: Log
    writer: str
    times: AcceptedTimes

    @property
    def arriving(self) -> ArrivingRows:
        """The completion of rows that arrive at this moment."""
        opened = self.log.opened
        return ArrivingRows(opened.dialect, opened.clock(), self.times)

    @property
    def directory(self) -> str:
        """The engine's directory for files of Spark tasks."""
        return shared_directory(self.log.opened)

    def append(self, blocks: Sequence[StoredBlock], directory: str, query: str, batch: int) -> None:
        """Append the blocks of a batch, as `streaming_sink` appends its frame."""
        identity = MicroBatch(self.writer, batch, query=query)
        append_blocks(self.log.opened, blocks, directory, identity)


def target_of(options: Mapping[str, str]) -> BatchTarget:
    """The target that the options of a streaming query name.

    Args:
        options: `warehouse` or `config`, `stream` or `path`, `writer`, `any_time`, and those of Spark itself; the names
            in lower case.

    Raises:
        UsageError: an option is missing, wrong, or one of `Log.sink` alone; or there is no such stream.
    """
    for option in options:
        if option in _OF_THE_SINK:
            raise UsageError(
                f"the option `{option}` needs the frame of a batch, which a data source does not get; use "
                f"foreachBatch(stream.sink(WRITER, {option}=…))"
            )
        if option not in (*_OPTIONS, *_OF_SPARK):
            raise UsageError(
                f"a streaming query has no option `{option}` for the format retention; it has {', '.join(_OPTIONS)}"
            )
    writer, any_time = options.get("writer"), options.get("any_time", "false").lower()
    if not writer:
        raise UsageError(
            'the query has no name in the stream: add .option("writer", NAME), one name for each checkpoint'
        )
    if any_time not in _TRUTH:
        raise UsageError(f"the option `any_time` is true or false, not {any_time!r}")
    return LogTarget(log_of(options), writer, accepted_times(any_time=_TRUTH[any_time]))
