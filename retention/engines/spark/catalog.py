"""The catalogs of a Spark session: the directory of a table by its name, and new views."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from retention.config.locations import refused_location
from retention.engines.spark.connect import setting_of
from retention.engines.spark.source_columns import reason_of
from retention.errors import UsageError
from retention.storage.places import hadoop_place

_PROVIDER = "delta"


def directory_of(session: SparkSession, name: str) -> str:
    """The directory of a Delta table, as `DESCRIBE DETAIL` of a session has it.

    Args:
        session: knows the catalog.
        name: `catalog.schema.table`.

    Raises:
        UsageError: the session knows no such table, it is no Delta table, or it lies where the engine does not reach.
    """
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))
    try:
        detail = session.sql(f"DESCRIBE DETAIL {quoted}").select("format", "location").first()
    except AnalysisException as error:
        raise UsageError(
            f"{name}: Spark knows no such table ({reason_of(error)}); configure its catalog in the session, or write "
            "the table's path"
        ) from error
    if detail is None or detail["format"] != _PROVIDER:
        raise UsageError(
            f"{name}: is no Delta table; name a Delta table, or write the path of a directory of Parquet files"
        )
    return _as_configured(name, detail["location"])


def make_view(session: SparkSession, statement: str) -> str:
    """Run the statement that makes a view.

    Returns:
        A warning if the catalog is in memory, else empty.

    Raises:
        UsageError: Spark refuses the statement.
    """
    try:
        session.sql(statement)
    except AnalysisException as error:
        raise UsageError(
            f"Spark refuses the view ({reason_of(error)}); correct --name, or the session's catalog"
        ) from error
    if setting_of(session, "spark.sql.catalogImplementation") == "hive":
        return ""
    return "the catalog of this Spark is in memory, so the view ends with the Spark application"


def _as_configured(name: str, location: str) -> str:
    place = hadoop_place(location)
    why = refused_location(place)
    if why is not None:
        raise UsageError(f"{name}: its location {location} {why}")
    return place
