"""Rows, files and swaps for the contract of stores, in one-line helpers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from retention.core.table_updates import SetNextSeq, SetOpenBase, set_batches
from retention.datafile import parquet
from retention.ports import Snapshot, Store, Swap
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.schemas.messages import FILE_COLUMNS

NOTHING = LOGGED_FILES.empty_table()
SECOND = 1_000_000_000


def rows(seqs: Iterable[int], **columns: Sequence[Any]) -> pa.Table:
    """Messages of shape `FILE_COLUMNS`; message n is stored at second n, on one of three subjects."""
    numbers = list(seqs)
    values: dict[str, Sequence[Any]] = {
        "seq": numbers,
        "subject": [f"orders.{n % 3}" for n in numbers],
        "ts_ns": [n * SECOND for n in numbers],
        "time": [n * 1_000_000 for n in numbers],
        "headers": [None] * len(numbers),
        "payload": [b"payload"] * len(numbers),
        "size": [50] * len(numbers),
        "deadline_ns": [None] * len(numbers),
        "marker": [False] * len(numbers),
        "msg_id": [None] * len(numbers),
        "origin_ts_ns": [None] * len(numbers),
    }
    return pa.table(values | columns, schema=FILE_COLUMNS)


def foreign_rows(seqs: Iterable[int], segment: int, **columns: Sequence[Any]) -> pa.Table:
    """The same with partition and segment, as appended by another writer."""
    table = rows(seqs, **columns)
    for number, (name, kind, value) in enumerate(
        [("partition", pa.int32(), 0), ("segment", pa.int64(), segment)]
    ):
        table = table.add_column(number, name, pa.array([value] * table.num_rows, kind))
    return table


def staged(store: Store, *tables: pa.Table, segment: int = 1, partition: int = 0) -> pa.Table:
    """One staged file per table, described: shape `FILE_STATS`."""
    found = []
    for table in tables:
        [file] = store.stage(partition, segment)
        parquet.write_messages(file.location, [table])
        found.append(parquet.describe(file).stats)
    return parquet.stats_table(found)


def append(
    store: Store, seqs: Sequence[int], segment: int = 1, batches: dict[str, int] | None = None
) -> int:
    """Append one file and set next sequence and open base, like an appender; returns the new version."""
    snapshot = store.snapshot()
    added = staged(store, rows(seqs), segment=segment)
    swap = appending(added, max(seqs) + 1, segment, batches)
    return store.commit(swap, snapshot)


def appending(
    added: pa.Table, next_seq: int, segment: int = 1, batches: dict[str, int] | None = None
) -> Swap:
    """A swap that assigns sequences."""
    return Swap(
        NOTHING,
        added,
        {"run": "append"},
        updates=[SetNextSeq(0, next_seq), SetOpenBase(0, segment), *set_batches(batches or {})],
    )


def removing(files: pa.Table, add: pa.Table | None = None, run: str = "removal") -> Swap:
    """A swap that assigns none."""
    added = FILE_STATS.empty_table() if add is None else add
    return Swap(files.select(LOGGED_FILES.names), added, {"run": run, "plan_id": "p"})


def live(store: Store) -> pa.Table:
    """Statistics of the current files."""
    return store.inventory(store.snapshot()).files


def sequences(store: Store, files: pa.Table | None = None) -> list[int]:
    """All live sequences, in order, read from the files themselves."""
    table = live(store) if files is None else files
    found: list[int] = []
    for file in store.data_files(table):
        found += parquet.read_columns(file, ["seq"])[0]["seq"].to_pylist()
    return sorted(found)


def latest(store: Store) -> tuple[Snapshot, pa.Table]:
    """A snapshot and its statistics."""
    snapshot = store.snapshot()
    return snapshot, store.inventory(snapshot).files
