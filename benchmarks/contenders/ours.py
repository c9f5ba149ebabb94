"""This engine: the configuration sets the limits, one call applies them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from deltalake import DeltaTable, TableFeatures

import retention
from benchmarks.contenders.contender import DeltaContender
from benchmarks.data import copy_warehouse, messages_of, totals_of, ttl_settings, write_config
from benchmarks.tasks import ALL_NAMES, COMPACT_NAMES, NAMES, STREAM, TTL_NAMES, Task
from retention.engines.select import EngineName

_AGE_NS = 30 * 86_400 * 10**9


class Local(DeltaContender):
    """Rows are read and written in this process."""

    tasks: tuple[str, ...] = ALL_NAMES
    engine: ClassVar[EngineName] = "local"

    def place(self, source: Path, target: Path, task: Task) -> None:
        copy_warehouse(source, target)
        limits = {
            "age": "max_age: 30d",
            "last": f"max_msgs_per_subject: {task.limit}",
            "bytes": f"max_bytes: {task.limit}",
            "ttl": ttl_settings(task.layout),
            "small": "segment_size: 1TiB, compact: true",
            "hollow": "segment_span: off, compact: true",
        }
        write_config(target, limits[task.kind])

    def run(self, place: Path, task: Task) -> None:
        if task.name in COMPACT_NAMES:
            (merged,) = (
                retention.open_warehouse(place, engine=self.engine).compact([STREAM]).apply()
            )
            if merged.error is not None:
                raise merged.error
            return
        warehouse = retention.open_warehouse(place, engine=self.engine)
        as_of_ns = {"age": task.limit + _AGE_NS, "ttl": task.limit}.get(task.kind)
        (outcome,) = warehouse.apply([STREAM], as_of=as_of_ns)
        if outcome.error is not None:
            raise outcome.error


class LocalWithVectors(Local):
    """The same on a table with deletion vectors."""

    tasks = (*NAMES, *TTL_NAMES)

    def place(self, source: Path, target: Path, task: Task) -> None:
        super().place(source, target, task)
        table = DeltaTable(messages_of(target))
        table.alter.add_feature(
            TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
        )
        table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})

    def survivors(self, place: Path) -> tuple[int, int]:
        """The number of messages that vectors leave, and the sum of their sequences."""
        stream = retention.open_warehouse(place, engine=self.engine).stream(STREAM)
        return totals_of(table["seq"].to_numpy() for table in stream.messages())
