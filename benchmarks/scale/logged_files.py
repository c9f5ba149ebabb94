"""A Delta table of very many files of another writer, with only the log: the growth of the planning process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.scale.foreign_files import MESSAGES_EACH, ForeignFiles, logged
from benchmarks.scale.step import Step, expect
from benchmarks.tasks import STREAM
from retention import open_warehouse
from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.read_count import ReadCount
from retention.engines.select import EngineName, Engines
from retention.schemas.files import FILE_STATS
from retention.stores.describing import Described, DescribeTask
from retention.stores.sidecar.stats_cache import StatisticsCache

_MESSAGE_BYTES = 40


@dataclass(frozen=True)
class LoggedFiles:
    """Files with statistics kept by tasks as for other files, but without opening them."""

    files: ForeignFiles

    def make(self, place: Path) -> None:
        """Write the log."""
        self.files.make_table(place, lambda _, numbers: logged(numbers))

    def steps(self, place: Path, engine: EngineName) -> Mapping[str, Step]:
        """The inventory, which describes every file, and a pass based on it."""
        stream = open_warehouse(place, engine=engine).stream(STREAM)
        describe = Step(partial(_described, stream.opened, engine), self._check)
        return {"describe, without opening": describe} | self.files.passes(place, engine)

    def _check(self, inventory: Inventory) -> dict[str, Any]:
        expect("files", inventory.files.num_rows, self.files.files)
        expect("files that tasks described", inventory.read.files, self.files.files)
        return {"files": self.files.files}


def describe_made(task: DescribeTask) -> Described:
    """Keep the statistics of a task's files, known from the log and this module."""
    with pa.ipc.open_stream(task.packed) as source:
        files = source.read_all()
    count = files.num_rows
    values = {name: files[name] for name in files.column_names}
    values |= dict.fromkeys(("first_ts_ns", "last_ts_ns"), files["min_ts_ns"])
    values |= {
        "bytes": pa.repeat(MESSAGES_EACH * _MESSAGE_BYTES, count),
        "in_time_order": pa.repeat(value=True, size=count),
    }
    values |= dict.fromkeys(("never", "deadlines", "markers"), pa.repeat(0, count))
    values |= dict.fromkeys(("min_deadline_ns", "max_deadline_ns"), pa.nulls(count, pa.int64()))
    rows = pa.table({name: values[name] for name in FILE_STATS.names}).cast(FILE_STATS)
    StatisticsCache(task.layout, lambda: task.clock_ns).add(rows)
    return Described(ReadCount(files=count), FILE_STATS.empty_table())


def _described(opened: OpenedStream, engine: EngineName) -> Inventory:
    with Engines(engine) as engines:

        def run(_: Callable[[Any], Any], tasks: Sequence[Any], weights: Sequence[int]) -> Any:
            picked = engines.pick("auto", sum(weights), 0)
            return picked.map(describe_made, tasks, weights)

        return opened.store.inventory(opened.store.snapshot(), run)
