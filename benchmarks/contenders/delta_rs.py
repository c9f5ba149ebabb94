"""deltalake (delta-rs) by hand: `delete` with a predicate, or an overwrite with the survivors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties, write_deltalake

from benchmarks.contenders.contender import (
    ROW_GROUP_ROWS,
    ZSTD_LEVEL,
    DeltaContender,
    first_to_keep,
)
from benchmarks.data import messages_of
from benchmarks.tasks import ALL_NAMES, COMPACT_NAMES, Task

_WRITER = WriterProperties(
    compression="ZSTD", compression_level=ZSTD_LEVEL, max_row_group_size=ROW_GROUP_ROWS
)


class ByTime(DeltaContender):
    """One predicate on the deciding column."""

    tasks = ALL_NAMES

    def run(self, place: Path, task: Task) -> None:
        table = DeltaTable(messages_of(place))
        if task.name in COMPACT_NAMES:
            table.optimize.compact(target_size=task.limit, writer_properties=_WRITER)
        elif task.kind == "last":
            _keep_last(table)
        elif task.kind == "bytes":
            table.delete(f"seq < {_first_seq(table, task.limit)}", writer_properties=_WRITER)
        else:
            table.delete(f"{task.column} <= {task.limit}", writer_properties=_WRITER)


class ByPartition(DeltaContender):
    """Whole segments by a predicate on the partition column (metadata only), then the cut segment."""

    tasks = ("drop", "cut", "bytes")

    def run(self, place: Path, task: Task) -> None:
        table = DeltaTable(messages_of(place))
        column, limit = "ts_ns", task.limit
        if task.kind == "bytes":
            column, limit = "seq", _first_seq(table, task.limit) - 1
        files = pa.table(table.get_add_actions(flatten=True))
        spent = files.filter(pc.less_equal(files[f"max.{column}"], limit))
        cut = files.filter(
            pc.and_(
                pc.less_equal(files[f"min.{column}"], limit),
                pc.greater(files[f"max.{column}"], limit),
            )
        )
        if spent.num_rows:
            last = pc.max(spent["partition.segment"]).as_py()
            table.delete(f"segment <= {last}")
        for segment in cut["partition.segment"].to_pylist():
            table.delete(f"segment = {segment} AND {column} <= {limit}", writer_properties=_WRITER)


def _first_seq(table: DeltaTable, limit: int) -> int:
    rows = table.to_pyarrow_dataset().to_table(columns=["seq", "size"]).sort_by("seq")
    return first_to_keep(rows["seq"].to_numpy(), rows["size"].to_numpy(), limit)


def _keep_last(table: DeltaTable) -> None:
    dataset = table.to_pyarrow_dataset()
    narrow = dataset.to_table(columns=["subject", "seq"])
    last = narrow.group_by("subject").aggregate([("seq", "max")])["seq_max"]
    survives = (pc.field("seq") >= pc.min(last)) & pc.field("seq").isin(last.combine_chunks())
    write_deltalake(
        table,
        dataset.to_table(filter=survives),
        mode="overwrite",
        partition_by=["partition", "segment"],
        writer_properties=_WRITER,
    )
