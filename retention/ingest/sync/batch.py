"""The batches of a sync: messages with their server's sequences, staged after the end of the copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from retention.core import message_rows
from retention.core.seq_ranges import gaps_in
from retention.core.spans import Array
from retention.datafile.segment_writer import Staged, Staging, stage_rows
from retention.layout.partition_tails import StreamEnds

_TABLE_BYTES = 8 << 20
"""The approximate size of the tables that are written at a time."""


class Batch(Protocol):
    """Messages that one commit adds, with the position after them."""

    @property
    def until(self) -> int:
        """The last sequence of the server that was read."""
        ...

    def gaps(self, first: int) -> Array:
        """The ranges of sequences from `first` to `until` without a message; int64, ascending, shape (n, 2)."""
        ...

    def stage(self, staging: Staging, ends: StreamEnds) -> Staged:
        """Write the messages after the end of the copy, and read them back.

        Raises:
            VerificationError: a file differs from the rows written to it.
        """
        ...


@dataclass(frozen=True)
class ReadBatch:
    """Messages that this process read."""

    storage: message_rows.Storage
    rows: pa.Table | None
    """Shape `RAW_ROWS`, ascending; None: the server has none up to `until`."""
    until: int

    def gaps(self, first: int) -> Array:
        """The ranges of sequences from `first` to `until` without a message; int64, ascending, shape (n, 2)."""
        seqs = np.empty(0, np.int64) if self.rows is None else self.rows["seq"].to_numpy()
        return gaps_in(seqs, first, self.until)

    def stage(self, staging: Staging, ends: StreamEnds) -> Staged:
        """Write the messages after the end of the copy, and read them back.

        Raises:
            VerificationError: a file differs from the rows written to it.
        """
        return stage_rows(staging, self._complete(), ends)

    def _complete(self) -> Iterator[pa.Table]:
        """Rows as they are stored, shape `FILE_COLUMNS`, in tables of a few MiB."""
        if self.rows is None:
            return
        step = max(1, self.rows.num_rows * _TABLE_BYTES // max(self.rows.nbytes, 1))
        for start in range(0, self.rows.num_rows, step):
            yield message_rows.complete_rows(self.rows.slice(start, step), self.storage)
