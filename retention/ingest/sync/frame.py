"""A sync by Spark: rows of the format `nats` become messages of a copy, with their server's position in the commit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from retention.context.context import OpenedStream
from retention.core.accepted_times import ALL_TIMES
from retention.core.spans import Array
from retention.datafile.segment_writer import Staged, Staging
from retention.dialects.jetstream_copy import CopiedRows, JetStreamCopy
from retention.errors import RefusedError
from retention.ingest.sync.options import SyncBounds
from retention.ingest.sync.result import Synced
from retention.ingest.sync.run import MOST_KNOWN_GAPS, SyncRun, running
from retention.layout.partition_tails import StreamEnds
from retention.planners.scratch import new_scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from retention.engines.spark.copied import CopiedFrame
    from retention.nats.stream import RemoteStream

MOST_ASKED = 100
"""The most gaps of a frame that are looked at one by one, if a server has deleted too many sequences to list them."""


def run_frame(
    frame: DataFrame,
    opened: OpenedStream,
    remote: RemoteStream,
    bounds: SyncBounds,
    along: Callable[[int], None],
) -> Synced:
    """Copy the rows of a frame that the copy does not have, as one commit with the position after them.

    Tasks read the server and write the files. So a frame that is given again adds nothing, and a sync without Spark
    goes on after it. Rows must be of the server's stream as it is now, and leave out no message that it holds.

    Args:
        frame: rows of the format `nats`, with all their columns; its session is used and not changed.
        opened: the stream, which is created if it does not exist.
        remote: the server's stream.
        bounds: what may be missed; the other bounds are the frame's.
        along: called before the first message and after the commit, with the stream's last sequence.

    Raises:
        UsageError: a column is missing or of another type, two rows have one sequence, or the session was stopped.
        RefusedError: as `run_sync`; or the frame leaves out messages that the server holds.
        BusyError: as `run_sync`.
    """
    from retention.engines.spark.copied import copied_frame
    from retention.engines.spark.engine import SparkEngine
    from retention.engines.spark.session import refuse_stopped

    refuse_stopped(frame.sparkSession)
    engine = SparkEngine(frame.sparkSession)
    with (
        running(opened, remote, bounds, along) as run,
        closing(new_scratch(opened, engine)) as scratch,
    ):
        dialect = JetStreamCopy.of(opened.config)
        check = CopiedRows(dialect, opened.clock(), ALL_TIMES, run.info.created)
        rows = copied_frame(engine, frame, check, run.start.held, scratch.location)
        if rows.until is not None:
            batch = FrameBatch(rows, rows.until)
            _refuse_left_out(opened, remote, run, batch)
            run.take(batch)
        return run.result("end")


@dataclass(frozen=True)
class FrameBatch:
    """Messages that tasks of Spark read."""

    rows: CopiedFrame
    until: int

    def gaps(self, first: int) -> Array:
        """The ranges of sequences from `first` to `until` without a message; int64, ascending, shape (n, 2)."""
        return self.rows.gaps(first)

    def stage(self, staging: Staging, ends: StreamEnds) -> Staged:
        """Write the messages after the end of the copy, and read them back.

        Raises:
            VerificationError: a file differs from the rows written to it.
        """
        return self.rows.stage(staging, ends)


def _refuse_left_out(
    opened: OpenedStream, remote: RemoteStream, run: SyncRun, batch: FrameBatch
) -> None:
    left_out = first_left_out(remote, batch.gaps(run.start.first))
    if left_out is not None:
        raise RefusedError(
            f"{opened.name}: the frame leaves out message {left_out:,} of {run.info.name}, which the server holds "
            f"(messages up to {run.start.held:,} are here, and the frame ends at {batch.until:,}); nothing was copied; "
            f"read from {run.start.held + 1:,} on (`start`, in a query with a new checkpoint), and give all rows"
        )


def first_left_out(remote: RemoteStream, gaps: Array) -> int | None:
    """The first sequence of some gaps that the server holds; None if there is none.

    All gaps are compared with the sequences that the server has deleted, if these are few enough to ask for. Else
    `MOST_ASKED` gaps, spread over all, are looked at.
    """
    if not len(gaps):
        return None
    info = remote.info()
    is_listed = info.last_seq - info.first_seq + 1 - info.messages <= MOST_KNOWN_GAPS
    if is_listed:
        info = remote.info(deleted=True)
    inside = gaps[gaps[:, 1] >= info.first_seq]
    if not len(inside):
        return None
    inside[0, 0] = max(inside[0, 0], info.first_seq)
    if is_listed:
        return _first_held(inside, info.deleted)
    for low, high in inside[np.unique(np.linspace(0, len(inside) - 1, MOST_ASKED).astype(int))]:
        there = remote.next_message(int(low))
        if there is not None and there.seq <= high:
            return there.seq
    return None


def _first_held(gaps: Array, deleted: Array) -> int | None:
    """The first sequence of some gaps that is not among the deleted ones, which ascend."""
    low, high = np.searchsorted(deleted, gaps[:, 0]), np.searchsorted(deleted, gaps[:, 1], "right")
    partly = np.flatnonzero(high - low < gaps[:, 1] - gaps[:, 0] + 1)
    if not len(partly):
        return None
    at = int(partly[0])
    inside = deleted[low[at] : high[at]]
    first = int(gaps[at, 0])
    steps = np.flatnonzero(inside != np.arange(first, first + len(inside)))
    return first + (int(steps[0]) if len(steps) else len(inside))
