"""Erasing deleted messages: every file of a plain Parquet stream that still holds one of them is deleted at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention.context.context import OpenedStream
from retention.errors import BusyError
from retention.history.record import RunRecord
from retention.rules.requests import Delete, Request
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.parquet.log import ParquetLog


def erase(opened: OpenedStream, request: Request | None) -> None:
    """Delete the removed files that hold messages erased by a committed request, under the maintenance lease.

    Copies left by earlier runs are deleted as well: none of those runs can be undone any more, because a later run has
    removed messages from the same segment.

    Args:
        opened: the stream, which is not a Delta table.
        request: the removal request; nothing is deleted unless it erases.

    Raises:
        BusyError: removed files have not been moved to their final location yet.
    """
    if not isinstance(request, Delete) or not request.erase:
        return
    # Opening finishes the moves of all commits: no file outside `messages/` is live afterwards.
    live = set(opened.store.snapshot().files["path"].to_pylist())
    layout = opened.layout
    wanted = np.array(request.seqs, dtype=np.int64)
    unmoved = [path for path in _data_files(layout.messages) if path not in live]
    if any(_holds(layout.live(path), wanted) for path in unmoved):
        raise BusyError(
            f"{opened.name}: the messages are deleted, but another process keeps files that hold them from being moved "
            f"out of {layout.messages}; try again: the next run of this stream erases them"
        )
    # Where directory listings lag, the log still has every name.
    named = ParquetLog(layout).names_ever()
    holding = [
        (place, path)
        for place in ("trash", "staging")
        for path in sorted({*_data_files(layout.engine_path(place)), *named})
        if _holds(layout.engine_path(place, path), wanted)
    ]
    files.delete(layout.engine_path(place, path) for place, path in holding)
    files.delete(layout.engine_path("subjects", path) for _, path in holding)
    reached(Step.ERASED)


def erase_recorded(opened: OpenedStream, record: RunRecord) -> None:
    """Finish the erasure of an interrupted but committed run, by its record in the run history."""
    erase(opened, record.carried_request)


def _data_files(directory: str) -> list[str]:
    return [path for path in files.walk(directory) if path.endswith(".parquet")]


def _holds(location: str, wanted: np.ndarray) -> bool:
    """Whether a file has one of the sequences; a file still being written has no deleted ones."""
    try:
        with files.reading(location) as source:
            seqs = pq.ParquetFile(source).read(["seq"])["seq"].to_numpy()
    except (FileNotFoundError, pa.ArrowInvalid):
        return False
    return bool(np.isin(wanted, seqs).any())
