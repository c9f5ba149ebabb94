"""A view of a stream for analysts: its statement, and its creation in the catalog of a Spark session."""

from __future__ import annotations

from collections.abc import Sequence

from retention.context.context import OpenedStream
from retention.engines.select import EngineName, Engines
from retention.engines.spark.connect import is_missing
from retention.errors import UsageError
from retention.views.analyst_view import view_statement


def sql_of_view(opened: OpenedStream, name: str, fields: Sequence[str] = ()) -> str:
    """The statement that makes a view of a stream, as from `view_statement`.

    Raises:
        UsageError: the stream has no table, or one whose directory may also have other files than its live ones.
        RefusedError, ForeignRowsError, DamagedError: as `Store.snapshot`.
    """
    if opened.table_format.spark_source is None:
        raise UsageError(
            f"{opened.name}: is a Parquet stream, and only its log names its live files: a view of its directory "
            "would also read files that a run has not moved yet; read it with "
            f'spark.read.format("retention").option("config", FILE).load("{opened.name}"), or store it as Delta'
        )
    if not opened.table.exists():
        raise UsageError(
            f"{opened.name}: nothing was stored yet, so there is no table to view; publish, import or ingest into it"
        )
    opened.store.snapshot()
    is_topic = opened.config.topic is not None
    return view_statement(name, opened.layout.messages, fields, is_topic=is_topic)


def create_view(statement: str, engine: EngineName | None) -> str:
    """Make a view in the catalog of the active Spark session, or of a new one.

    Returns:
        A warning that the view ends with Spark; empty if its catalog outlives it.

    Raises:
        UsageError: the engine is local, Spark is not installed, or Spark refuses the statement.
    """
    if engine == "local":
        raise UsageError("--create needs Spark, and the engine is local; use another engine")
    if is_missing("pyspark"):
        raise UsageError(
            "--create needs pyspark, which is not installed; install lake-retention[spark]"
        )
    from retention.engines.spark.catalog import make_view

    with Engines(engine) as engines:
        return make_view(engines.session(), statement)
