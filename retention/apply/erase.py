"""Erasing deleted messages: every file of a plain Parquet stream that still holds one of them goes at once."""

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
from retention.stores.layout import Layout
from retention.stores.parquet.log import ParquetLog


def erase(opened: OpenedStream, request: Request | None) -> None:
    """Delete the removed files that hold what a committed request erases, under the maintenance lease.

    Whatever copies of the messages earlier runs have left goes, too: none of those runs can be undone any more, since
    a later one has removed from the same segment.

    Args:
        opened: the stream, which is not a Delta table.
        request: what was asked for; nothing happens unless it erases.

    Raises:
        BusyError: removed files are not where removed files belong yet.
    """
    if not isinstance(request, Delete) or not request.erase:
        return
    # Opening finishes the moves of all commits: then no file outside `messages/` is live.
    live = set(opened.store.snapshot().files["path"].to_pylist())
    layout = Layout(opened.root, opened.name)
    wanted = np.array(request.seqs, dtype=np.int64)
    unmoved = [path for path in _data_files(layout.messages) if path not in live]
    if any(_holds(layout.live(path), wanted) for path in unmoved):
        raise BusyError(
            f"{opened.name}: the messages are deleted, but another process keeps files that hold them from being moved "
            f"out of {layout.messages}; try again: the next run of this stream erases them"
        )
    # Where lists of a directory come late, the log knows the names all the same.
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
    """Finish what an interrupted run has committed, by its record in the run history."""
    erase(opened, record.carried_request)


def _data_files(directory: str) -> list[str]:
    return [path for path in files.walk(directory) if path.endswith(".parquet")]


def _holds(location: str, wanted: np.ndarray) -> bool:
    """Whether a file has one of the sequences; one that is only being written has none that was deleted."""
    try:
        with files.reading(location) as source:
            seqs = pq.ParquetFile(source).read(["seq"])["seq"].to_numpy()
    except (FileNotFoundError, pa.ArrowInvalid):
        return False
    return bool(np.isin(wanted, seqs).any())
