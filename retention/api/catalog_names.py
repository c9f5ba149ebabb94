"""The directories of tables in place that are named by a catalog."""

from __future__ import annotations

from retention.config.table import TableConfig
from retention.config.table_types import is_catalog_name
from retention.engines.select import EngineName, Engines
from retention.engines.spark.connect import is_missing
from retention.errors import UsageError


def directory_of_table(table: TableConfig, engine: EngineName | None) -> str:
    """The location of a configured table, as from `directory_of_name`."""
    if not is_catalog_name(table.location):
        return table.location
    return directory_of_name(table.location, engine or table.engine)


def directory_of_name(name: str, engine: EngineName | None) -> str:
    """The directory of a table that a catalog of Spark names.

    Args:
        name: `catalog.schema.table`.
        engine: the engine that may be used; None: any.

    Raises:
        UsageError: the engine is local, or Spark is not installed or knows no such Delta table where the engine
            reaches.
    """
    only_spark = f"{name} is a name in a catalog, which only Spark knows, and"
    if engine == "local":
        raise UsageError(
            f"{only_spark} the engine is local; use another engine, or write the table's path"
        )
    if is_missing("pyspark"):
        raise UsageError(
            f"{only_spark} pyspark is not installed; install lake-retention[spark], or write the table's path"
        )
    from retention.engines.spark.catalog import directory_of

    with Engines(engine) as engines:
        return directory_of(engines.session(), name)
