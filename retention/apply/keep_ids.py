"""Keeping the ids of removed messages: within its `duplicate_window` an id counts without its message."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.position import Position
from retention.core.column_values import highest
from retention.core.inventory import DataFile, SeqRanges
from retention.core.message_rows import later_mask
from retention.core.read_count import ReadCount
from retention.core.row_numbers import rows_at
from retention.core.seq_ranges import in_ranges, ranges_in
from retention.core.spans import Array
from retention.datafile.parquet import read_columns
from retention.plan.plan import Plan
from retention.ports import Snapshot
from retention.schemas.empty import empty_table
from retention.schemas.files import KEPT_IDS
from retention.storage import files
from retention.storage.parallel import in_threads
from retention.stores.kept_ids import UNSTORED_IDS, IdDigests, RemovedIds, UnstoredIds
from retention.stores.sidecar.subject_digests import ids_in


def keep_ids_of(opened: OpenedStream, plan: Plan, snapshot: Snapshot) -> ReadCount:
    """Keep the ids of the messages that a plan removes, as `keep_ids`; topics have none."""
    if plan.header.policy.topic is not None:
        return ReadCount()
    rewrite = plan.actions.rewrite
    lost = dict(zip(rewrite.files["path"].to_pylist(), rewrite.ranges(), strict=True))
    return keep_ids(opened, plan.actions.files, lost, snapshot)


def keep_ids(
    opened: OpenedStream,
    removed: pa.Table,
    lost: Mapping[str, Array | SeqRanges],
    snapshot: Snapshot,
) -> ReadCount:
    """Keep the ids of messages to be removed, as long as they count; return the reads that it took.

    An id counts until its message is a `duplicate_window` older than both the clock and the youngest message of the
    stream: messages may be published with other times than the clock's. Files of older messages are not opened, nor are
    files known to have no message with an id.

    Args:
        opened: the stream, under its maintenance lease.
        removed: the files that lose messages, shape `FILE_STATS`.
        lost: path → the ranges of sequences to be removed; a file without an entry loses all of them.
        snapshot: the current version of the table.

    Raises:
        DamagedError: a required file cannot be read.
    """
    since_ns = counts_since_ns(opened, snapshot.files["max_ts_ns"], removed["max_ts_ns"])
    digests = IdDigests(snapshot.table_id)

    def kept(file: DataFile) -> tuple[pa.Table, ReadCount]:
        if ids_in(file) == 0:
            return empty_table(KEPT_IDS), ReadCount()
        rows, read = read_columns(file, ("seq", "ts_ns", "msg_id"))
        goes = later_mask(rows["ts_ns"], since_ns)
        if file.path in lost:
            goes = pc.and_(
                goes, pa.array(in_ranges(rows["seq"].to_numpy(), ranges_in(lost[file.path])))
            )
        return digests.kept(rows.filter(goes)), read

    is_young = later_mask(removed["max_ts_ns"], since_ns).to_numpy()
    young = opened.store.data_files(rows_at(removed, np.flatnonzero(is_young)))
    if not opened.config.duplicate_window_ns:
        young = []
    results = list(in_threads(kept, young, files.read_parallelism(opened.root)))
    ids = pa.concat_tables([empty_table(KEPT_IDS), *(table for table, _ in results)])
    RemovedIds(opened.layout).keep(ids, since_ns)
    return sum((read for _, read in results), ReadCount())


def counts_since_ns(opened: OpenedStream, *times: pa.ChunkedArray) -> int:
    """The instant at or before which ids no longer count, nanoseconds since the epoch.

    Args:
        opened: the stream.
        times: of its messages, or of the youngest of some of them, nanoseconds since the epoch; any may be null.
    """
    known = map(highest, times)
    now = opened.clock()
    youngest = max((time_ns for time_ns in known if time_ns is not None), default=now)
    return min(now, youngest) - opened.config.duplicate_window_ns


def keep_unstored_ids(
    opened: OpenedStream, unstored: pa.Table, position: Position
) -> dict[str, int]:
    """Keep the ids of messages that are acknowledged and never stored; return the counters that their commit sets.

    Args:
        opened: the stream, under its append lease.
        unstored: the messages that have an id: `seq`, `ts_ns` and `msg_id`.
        position: the stream's end.
    """
    if not opened.config.duplicate_window_ns:
        return {}
    since_ns = counts_since_ns(opened, position.inventory.files["max_ts_ns"], unstored["ts_ns"])
    snapshot = position.snapshot
    ids = IdDigests(snapshot.table_id).kept(unstored)
    layout = opened.layout
    return {UNSTORED_IDS: UnstoredIds(layout, snapshot.counters).keep(ids, since_ns)}
