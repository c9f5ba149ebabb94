"""The Spark data source `retention`, and the registration of this package's formats in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.api.nats_source import NatsSource
from retention.engines.spark.arrow_batches import are_by_rows, bound_bytes
from retention.engines.spark.data_source import BatchTarget, SourceView, ViewSource
from retention.engines.spark.session import refuse_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RetentionSource(ViewSource):
    """A stream, read by `spark.read.format("retention")`, appended to by `df.writeStream.format("retention")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "retention"

    def view(self) -> SourceView:
        """The view that the options name.

        Raises:
            UsageError: an option is missing or wrong, or there is no such stream.
        """
        # Tasks load this module, and have no need of what opens a warehouse.
        from retention.api.source_views import view_of

        return view_of(self.options)

    def target(self) -> BatchTarget:
        """The log that the options name.

        Raises:
            UsageError: an option is missing or wrong, or there is no such stream.
        """
        from retention.api.batch_target import target_of

        return target_of(self.options)


def register(spark: SparkSession) -> None:
    """Make the formats `retention` and `nats` known to a session, for as long as it lasts.

    Bytes limit the session's Arrow batches from now on: a streaming query cannot report a row that is too long.

    Raises:
        UsageError: the session was stopped.
    """
    refuse_stopped(spark)
    if are_by_rows(spark):
        bound_bytes(spark)
    for source in (RetentionSource, NatsSource):
        spark.dataSource.register(source)
