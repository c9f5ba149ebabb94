"""Small directories of Parquet files of another writer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.engines.local import LocalEngine
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_table
from tests.retention.tables.tables import NOW

DAY = 24 * 3600
AT = pa.timestamp("us", "UTC")
TEN_DAYS = TablePolicy(TableColumns(time=("at",)), TableLimits(max_age_ns=10 * DAY * 10**9))


@dataclass(frozen=True)
class Directory:
    """A directory with the rows `id` and `at`."""

    opened: OpenedTable

    @property
    def root(self) -> Path:
        return Path(self.opened.location)

    def write(self, path: str, days: Sequence[float | None], kind: pa.DataType = AT) -> Path:
        """Write a file whose rows are that many days old."""
        now = NOW // 10**9
        micros = [None if age is None else int((now - age * DAY) * 10**6) for age in days]
        at = pa.array(micros, pa.int64()).cast(AT).cast(kind)
        return self.put(path, {"id": pa.array(range(len(days)), pa.int64()), "at": at})

    def put(self, path: str, columns: Mapping[str, Any], **options: Any) -> Path:
        """Write a file of these columns, in chunks of two rows."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(dict(columns)), place, row_group_size=2, **options)
        return place

    def with_policy(self, policy: TablePolicy) -> Directory:
        return Directory(replace(self.opened, policy=policy))

    def plan(self) -> TablePlan:
        return plan_table(self.opened, NOW, lambda _: LocalEngine())

    def files(self) -> list[str]:
        """The data files by their names, as Python lists them."""
        return sorted(
            path.relative_to(self.root).as_posix() for path in self.root.rglob("*.parquet")
        )

    def rows(self) -> int:
        """The rows that PyArrow reads."""
        return int(ds.dataset(self.root, format="parquet").count_rows())

    def aside(self) -> list[str]:
        """The files that runs moved aside."""
        kept = self.root.parent / "_retention"
        return sorted(path.name for path in kept.rglob("*") if path.is_file())


def removed(plan: TablePlan) -> list[str]:
    """The paths of the files that a plan removes."""
    return [each.add["path"] for each in plan.removals]


def at(folder: Path, policy: TablePolicy = TEN_DAYS) -> Directory:
    """The directory of a folder, which need not exist."""
    location, warehouse = str(folder / "lake" / "events"), str(folder / "warehouse")
    clock = lambda: NOW  # noqa: E731
    return Directory(OpenedTable("events", location, policy, warehouse, clock, format="parquet"))


def directory(folder: Path) -> Directory:
    """A directory of four files in two partitions: a has only old rows, b old and new ones, c and d new ones."""
    made = at(folder)
    Path(made.opened.warehouse).mkdir()
    made.write("kind=x/a.parquet", [30, 20, 10])
    made.write("kind=x/b.parquet", [12, 1])
    made.write("kind=y/c.parquet", [3, 2])
    made.write("kind=y/d.parquet", [1])
    return made


def rewrite(place: Path) -> None:
    """Write a file again with the same content, at the same time."""
    before, content = place.stat(), place.read_bytes()
    place.replace(place.with_suffix(".old"))
    place.write_bytes(content)
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    place.with_suffix(".old").unlink()
