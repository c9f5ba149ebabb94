"""Held rows of files that left a table: those without an equal row in the table are the only copies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from retention.core.spans import Array
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import DamagedError
from retention.planners.table_rows import NarrowFile
from retention.storage import files
from retention.storage.errors import is_of_storage, storage_error
from retention.tables.bounds import by_path, live_rows
from retention.tables.erased_rows import ChooseEngine, ErasedFile, rows_at
from retention.tables.held_rows import TableHolds
from retention.tables.narrow import NarrowReader
from retention.tables.plan import FileRemovals

_DIGEST = np.dtype("S32")
"""The hexadecimal digits of 16 bytes; numpy takes zero bytes off the end of others."""


@dataclass(frozen=True)
class RowsTask:
    """A task: the digests of some rows of a file."""

    location: str
    partition: Mapping[str, str | None]
    """Column → value of the file's partition; its rows do not have them."""
    positions: bytes
    """A serialized `BitMap64`."""


def holds_with_sole_copies(
    holds: TableHolds, doomed: Sequence[ErasedFile], choose: ChooseEngine
) -> set[str]:
    """The ids of the legal holds that cover a row of which only files that are not live have a copy.

    A copy is a row with the same value in every column, as often as one file has it; a column without a value is no
    difference. Rows that hide behind a vector, or lie under another name or type of a column, have no copy.

    Args:
        holds: the legal holds on the table's present version.
        doomed: files that are not live.
        choose: the choice of an engine.

    Raises:
        DamagedError, StorageError: a file cannot be read, or is gone meanwhile.
    """
    tasks = [partial(_narrow_task, file) for file in doomed]
    covered = holds.covered(tasks, choose)
    needed: set[str] = set()
    for hold in holds.ids:
        held = [
            RowsTask(_location(holds.snapshot, file.add), _partition(file.add), rows.serialize())
            for file, by_hold in zip(doomed, covered, strict=True)
            if (rows := by_hold.get(hold))
        ]
        if held and not _are_live(holds, hold, held, choose):
            needed.add(hold)
    return needed


def digests_of_rows(task: RowsTask) -> bytes:
    """Carry out a `RowsTask`: the digests of its rows, one after the other.

    Raises:
        DamagedError, StorageError: the file cannot be read.
    """
    try:
        return b"".join(_digests(task))
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and is_of_storage(error):
            raise storage_error(task.location, error) from error
        raise DamagedError(
            f"{task.location}: cannot be read as a data file of the table, so it may have, or lack, the only copy of a "
            f"row under a legal hold ({error}); no such file was deleted; restore it from a copy, or run again"
        ) from error


def live_copies(wanted: bytes, task: RowsTask) -> bytes:
    """The number of a file's rows with each of the wanted digests, which are distinct and ascending; int64."""
    names = np.frombuffer(wanted, _DIGEST)
    digests = np.frombuffer(digests_of_rows(task), _DIGEST)
    distinct, counts = np.unique(digests[np.isin(digests, names)], return_counts=True)
    by_name = np.zeros(len(names), np.int64)
    by_name[np.searchsorted(names, distinct)] = counts
    return by_name.tobytes()


def _are_live(holds: TableHolds, hold: str, held: Sequence[RowsTask], choose: ChooseEngine) -> bool:
    """Whether the table has as many equal rows as each file has, for the rows under one legal hold."""
    names, wanted = _most_in_one_file(held, choose)
    live = list(_live_tasks(holds, hold, choose))
    if not live:
        return False
    weights = [files.length(task.location) or 0 for task in live]
    parts = choose(sum(weights)).map(partial(live_copies, names.tobytes()), live, weights)
    rows = np.sum([np.frombuffer(part, np.int64) for part in parts], axis=0)
    return bool((rows >= wanted).all())


def _most_in_one_file(tasks: Sequence[RowsTask], choose: ChooseEngine) -> tuple[Array, Array]:
    """The distinct digests of rows, ascending, and for each the most rows of one file that have it."""
    weights = [files.length(task.location) or 0 for task in tasks]
    parts = choose(sum(weights)).map(digests_of_rows, tasks, weights)
    by_file = [np.unique(np.frombuffer(part, _DIGEST), return_counts=True) for part in parts]
    names = np.unique(np.concatenate([digests for digests, _ in by_file]))
    most = np.zeros(len(names), np.int64)
    for digests, counts in by_file:
        at = np.searchsorted(names, digests)
        most[at] = np.maximum(most[at], counts)
    return names, most


def _live_tasks(holds: TableHolds, hold: str, choose: ChooseEngine) -> Iterator[RowsTask]:
    """The live rows under one legal hold, by file."""
    snapshot = holds.snapshot
    order = by_path(snapshot)
    adds, live = snapshot.adds_of(order.tolist()), live_rows(snapshot, order).tolist()
    every = [FileRemovals(add, {}, count) for add, count in zip(adds, live, strict=True)]
    for add, by_hold in zip(adds, holds.positions(every, choose), strict=True):
        rows = by_hold.get(hold)
        if rows:
            yield RowsTask(_location(snapshot, add), _partition(add), rows.serialize())


def _digests(task: RowsTask) -> Iterator[bytes]:
    for rows in rows_at(task.location, BitMap64.deserialize(task.positions)):
        for row in rows.to_pylist():
            values = {name: value for name, value in row.items() if value is not None}
            text = repr(sorted({**values, **task.partition}.items(), key=lambda pair: pair[0]))
            yield hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32].encode()


def _narrow_task(file: ErasedFile, reader: NarrowReader) -> NarrowFile:
    return reader.task(0, file.add, 0)


def _location(snapshot: DeltaSnapshot, add: Mapping[str, Any]) -> str:
    return files.join(snapshot.root, unquote(str(add["path"])))


def _partition(add: Mapping[str, Any]) -> dict[str, str | None]:
    pairs = (add.get("partitionValues") or {}).items()
    return {name: value for name, value in pairs if value is not None}
