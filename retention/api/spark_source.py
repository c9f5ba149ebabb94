"""The Spark data source `retention`, and its registration in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.engines.spark.data_source import SourceView, ViewSource
from retention.engines.spark.session import refuse_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RetentionSource(ViewSource):
    """Messages, plan, history, state and files of a stream: `spark.read.format("retention")`."""

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


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("retention")` known to a session, for as long as it lasts.

    Raises:
        UsageError: the session was stopped.
    """
    refuse_stopped(spark)
    spark.dataSource.register(RetentionSource)
