"""PyIceberg by hand, on the same data files registered in an Iceberg table: `delete` with a filter, or an overwrite."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from benchmarks.contenders.contender import (
    ROW_GROUP_ROWS,
    ZSTD_LEVEL,
    Contender,
    first_to_keep,
)
from benchmarks.data import copy_data_files
from benchmarks.tasks import Task
from retention.schemas.messages import FILE_COLUMNS

_NAME = "bench.messages"
_PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": str(ZSTD_LEVEL),
    "write.parquet.row-group-limit": str(ROW_GROUP_ROWS),
}


class ByTime(Contender):
    """One filter on the deciding column; the files' own statistics find the completely removed ones."""

    def place(self, source: Path, target: Path, task: Task) -> None:
        del task
        copy_data_files(source, target / "data")
        catalog = _catalog(target)
        catalog.create_namespace("bench")
        table = catalog.create_table(_NAME, schema=FILE_COLUMNS, properties=_PROPERTIES)
        table.add_files([str(file) for file in sorted((target / "data").rglob("*.parquet"))])

    def run(self, place: Path, task: Task) -> None:
        table = _catalog(place).load_table(_NAME)
        if task.kind == "last":
            _keep_last(table)
        elif task.kind == "bytes":
            rows = table.scan(selected_fields=("seq", "size")).to_arrow().sort_by("seq")
            first = first_to_keep(rows["seq"].to_numpy(), rows["size"].to_numpy(), task.limit)
            table.delete(f"seq < {first}")
        else:
            table.delete(f"{task.column} <= {task.limit}")

    def files(self, place: Path) -> list[Path]:
        planned = _catalog(place).load_table(_NAME).scan().plan_files()
        return [Path(unquote(urlparse(file.file.file_path).path)) for file in planned]


def _catalog(place: Path) -> Catalog:
    return load_catalog(
        "bench",
        type="sql",
        uri=f"sqlite:///{place / 'catalog.db'}",
        warehouse=(place / "iceberg").as_uri(),
    )


def _keep_last(table: Table) -> None:
    narrow = table.scan(selected_fields=("subject", "seq")).to_arrow()
    last = narrow.group_by("subject").aggregate([("seq", "max")])["seq_max"]
    tail = table.scan(f"seq >= {pc.min(last)}").to_arrow()
    table.overwrite(tail.filter(pc.is_in(tail["seq"], value_set=last)))
