"""Tasks that read certain columns of a table's files, with the values of partitions from the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from retention.config.table_types import format_column
from retention.core.table_policy import Column, TableColumns
from retention.delta.schema import Leaf, arrow_type
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import positions_of, read_vector
from retention.planners.table_rows import NarrowColumn, NarrowFile
from retention.storage import files
from retention.tables.bounds import is_partition, leaf_of, typed_partition_values

_RESERVED = {"file", "row", "limit", "rows", "time_min", "time_max", "key_hash"}
"""Names of columns in files of rows that are not the table's."""

_OWN = "own:"
"""The start of names in narrow rows of columns that keep their own types, as times do not under the rules' names."""


def shown_name(column: Column) -> str:
    """The name of a table's column in files of rows; an underscore follows a name that is taken.

    >>> shown_name(("event", "at")), shown_name(("row",))
    ('event.at', 'row_')
    """
    name = format_column(column)
    return f"{name}_" if name in _RESERVED else name


def shown_columns(columns: TableColumns) -> dict[str, Column]:
    """Name in files of rows → column: the time, the expiry, the key and the order."""
    listed = (columns.time, columns.expires_at, *columns.key, *columns.order)
    return {shown_name(column): column for column in listed if column is not None}


def shown(column: NarrowColumn) -> str:
    """The name of a column that is read in its own type."""
    return column.name.removeprefix(_OWN)


def path_in(root: str, task: NarrowFile) -> str:
    """The path of a task's file from the table's location on."""
    return task.location.removeprefix(f"{root.rstrip('/')}/")


@dataclass(frozen=True)
class NarrowReader:
    """A choice of columns of a table."""

    snapshot: DeltaSnapshot
    leaves: Mapping[str, Leaf]
    """Name in narrow rows → column of the table."""

    @classmethod
    def of(cls, snapshot: DeltaSnapshot, columns: Mapping[str, Column]) -> NarrowReader:
        """The reader of columns by their names in narrow rows.

        Raises:
            ConfigError: the table does not have one.
        """
        return cls(snapshot, {name: leaf_of(snapshot, column) for name, column in columns.items()})

    @classmethod
    def of_own(cls, snapshot: DeltaSnapshot, columns: Mapping[str, Column]) -> NarrowReader:
        """The reader of columns in their own types; `shown` gives them their names.

        Raises:
            ConfigError: the table does not have one.
        """
        return cls.of(snapshot, {f"{_OWN}{name}": column for name, column in columns.items()})

    @cached_property
    def columns(self) -> tuple[NarrowColumn, ...]:
        """The columns as tasks name them."""
        return tuple(
            NarrowColumn(name, leaf.physical, arrow_type(leaf.type) or pa.string(), leaf.ids)
            for name, leaf in self.leaves.items()
        )

    def constants(self, add: Mapping[str, Any]) -> pa.Table:
        """The values that all rows of a file have, because they are those of its partition; one row.

        Raises:
            RefusedError: a value is no value of its column's type.
        """
        values: dict[str, pa.Array] = {}
        for name, leaf in self.leaves.items():
            if is_partition(self.snapshot, leaf):
                text = pa.array([add["partitionValues"].get(leaf.physical[0])], pa.string())
                values[name] = typed_partition_values(self.snapshot.root, leaf, text)
        return pa.table(values)

    def task(self, number: int, add: Mapping[str, Any], live: int) -> NarrowFile:
        """The task that reads a file of the table.

        Args:
            number: the file's number in the result.
            add: its `add` action.
            live: the rows that its vector leaves.

        Raises:
            RefusedError: as `constants`.
            DamagedError: its vector cannot be read.
        """
        root = self.snapshot.root
        dead = positions_of(read_vector(root, add.get("deletionVector")))
        return NarrowFile(
            number,
            files.join(root, unquote(str(add["path"]))),
            live + len(dead),
            self.columns,
            self.constants(add),
            dead,
        )
