"""The directory of a table in place that the configuration names by a catalog."""

from __future__ import annotations

from retention.config.table import TableConfig
from retention.config.table_types import is_catalog_name
from retention.engines.select import EngineName, Engines
from retention.errors import UsageError


def directory_of_table(table: TableConfig, engine: EngineName | None) -> str:
    """The location of a table; Spark is asked for the directory of a name in a catalog.

    Raises:
        UsageError: the engine is local, or Spark knows no such Delta table where the engine reaches.
    """
    if not is_catalog_name(table.location):
        return table.location
    with Engines(engine) as engines:
        if not engines.may_start_spark(table.engine):
            raise UsageError(
                f"{table.name}: {table.location} is a name in a catalog, which only Spark knows, and the engine is "
                "local; use another engine, or write the table's path"
            )
        from retention.engines.spark.catalog import directory_of

        return directory_of(engines.session(), table.location)
