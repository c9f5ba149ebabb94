"""Refusals of tables because of the warehouse, and of the other tables of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from retention.config.document import Mistake, Place
from retention.config.table import TableConfig
from retention.config.table_types import is_catalog_name
from retention.storage.places import S3

_OWN = ("streams", "runs", "tables", "_retention")
"""The warehouse's own directories."""


def location_mistakes(tables: Mapping[Place, TableConfig], warehouse: str) -> Iterator[Mistake]:
    """The mistakes of tables at one location, or at one that overlaps with the warehouse.

    Args:
        tables: with absolute locations.
        warehouse: its absolute location.
    """
    first: dict[str, str] = {}
    for place, table in tables.items():
        owner = first.setdefault(table.location, table.name)
        text = _overlap(table.location, warehouse)
        if owner != table.name:
            text = f"table {owner} is at this location, too; give one of them all the rules"
        if table.format == "parquet":
            text = text or _unmovable(table.location) or _nested(table, tables.values())
        if text is not None:
            yield Mistake((*place, "location"), text)


def _unmovable(location: str) -> str | None:
    if is_catalog_name(location):
        return "a directory of Parquet files has no name in a catalog; write its path, or format: delta"
    if location.startswith(S3):
        return (
            "an object store has no rename, so that a file of a directory without a log cannot be moved away and back "
            "in one step; write the table as Delta, and format: delta"
        )
    return None


def _nested(directory: TableConfig, tables: Iterable[TableConfig]) -> str | None:
    """The mistake of a directory with another table in it, whose files would be files of both."""
    for table in tables:
        if table.location.startswith(f"{directory.location.rstrip('/')}/"):
            return (
                f"table {table.name} lies in it, so that its files would belong to both tables; write the directory of "
                "one table"
            )
    return None


def _overlap(location: str, warehouse: str) -> str | None:
    if is_catalog_name(location):
        return None
    if f"{warehouse}/".startswith(f"{location}/"):
        return (
            f"the warehouse {warehouse} lies in it, where the owner of the table may delete it; write the table's own "
            "directory, or another warehouse"
        )
    for name in _OWN:
        directory = f"{warehouse}/{name}"
        if f"{location}/".startswith(f"{directory}/"):
            return (
                f"lies in {directory}, which belongs to the warehouse; write a table outside of it, or list a stream "
                "under `streams`"
            )
    return None
