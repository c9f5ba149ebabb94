"""Small Delta tables of another writer, and plans over them by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pyarrow as pa
from deltalake import write_deltalake
from pyroaring import BitMap64

from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.delta import snapshot as delta_log
from retention.tables.opened import OpenedTable
from retention.tables.plan import FileRemovals, TablePlan

NOW = 1_800_000_000 * 10**9
ROWS = 100
"""The rows of each file, with ids from `ROWS` times the file's number."""
Removals = Mapping[int, Mapping[str, BitMap64 | None]]
"""Number of a file → its rows that go, as `plan.FileRemovals.rows`."""
POLICY = TablePolicy(TableColumns(time=("at",)), TableLimits(max_age_ns=10**9))


@dataclass(frozen=True)
class Events:
    """A table of four files with ascending ids."""

    opened: OpenedTable

    @property
    def location(self) -> str:
        return self.opened.location

    def append(self, number: int) -> None:
        """Append a file, as its owner does."""
        ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
        write_deltalake(self.location, pa.table({"id": ids, "at": ids}), mode="append")

    def ids(self) -> list[int]:
        """The ids of all rows, as Polars reads them."""
        return sorted(pl.scan_delta(self.location).collect()["id"].to_list())

    def plan(self, rows: Removals) -> TablePlan:
        """A plan that removes rows from files by their numbers."""
        now = delta_log.read(self.location)
        adds = sorted(map(now.add_of, range(now.files.num_rows)), key=_first_id)
        removals = [FileRemovals(adds[number], of_file, ROWS) for number, of_file in rows.items()]
        return TablePlan(
            *("events", self.location, now.metadata["id"], now.version, NOW - 1, POLICY),
            tuple(removals),
            len(adds),
        )

    def later(self, instant_ns: int) -> Events:
        """The same table at another time of the clock."""
        return Events(replace(self.opened, clock=lambda: instant_ns))


def _first_id(add: Mapping[str, str]) -> int:
    return int(json.loads(add["stats"])["minValues"]["id"])


def at(folder: Path) -> Events:
    """The table of a folder."""
    location, warehouse = str(folder / "lake" / "events"), str(folder / "warehouse")
    return Events(OpenedTable("events", location, POLICY, warehouse, lambda: NOW))


def events(folder: Path, *, vectors: bool) -> Events:
    """A new table in a folder, with or without deletion vectors enabled by its owner."""
    table = at(folder)
    Path(table.opened.warehouse).mkdir()
    enabled = {"delta.enableDeletionVectors": str(vectors).lower()}
    ids = pa.array(range(ROWS), pa.int64())
    write_deltalake(table.location, pa.table({"id": ids, "at": ids}), configuration=enabled)
    for number in range(1, 4):
        table.append(number)
    return table
