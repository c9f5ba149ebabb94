"""Ranges read from a saved plan: few are held in memory, many are spilled to scratch files of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from retention.plan.removed_ranges import RemovedRanges, StoredPart, store_ranges
from retention.schemas.plan import REMOVED_RANGES
from retention.storage import files
from retention.storage.scratch_files import ScratchDirectory, local_directory

MOST_IN_MEMORY = 1 << 18
"""The maximum number of ranges of one plan in memory; if there are more, all are spilled."""
_OF_PART = 1 << 16
"""Ranges per scratch file, without a split of a data file's ranges; a reader of one file's ranges reads them all."""


def loaded_ranges(tables: Iterable[pa.Table]) -> RemovedRanges:
    """Collect ranges from an iterator of tables.

    Args:
        tables: shape `REMOVED_RANGES`, ascending by file within and across tables.

    Raises:
        OSError: the scratch files cannot be written.
    """
    held: list[pa.Table] = [REMOVED_RANGES.empty_table()]
    parts: list[StoredPart] = []
    rows, scratch = 0, None
    for piece in _whole_files(tables):
        held.append(piece)
        rows += piece.num_rows
        if rows > MOST_IN_MEMORY:
            scratch = scratch or local_directory()
            numbered = enumerate((some for some in held if some.num_rows), start=len(parts))
            parts += [_stored(some, number, scratch) for number, some in numbered]
            held = [REMOVED_RANGES.empty_table()]
    return RemovedRanges(pa.concat_tables(held), tuple(parts))


def _stored(ranges: pa.Table, number: int, scratch: ScratchDirectory) -> StoredPart:
    stored = store_ranges(ranges, files.join(scratch.location, f"{number}.arrow"))
    return StoredPart.of(replace(stored, owner=scratch))


def _whole_files(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same ranges in pieces of `_OF_PART` or more; no file is in two pieces."""
    waiting, rows = [REMOVED_RANGES.empty_table()], 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows < _OF_PART:
            continue
        together = pa.concat_tables(waiting)
        file = together["file"].to_numpy()
        last = int(np.searchsorted(file, file[-1]))
        if last:
            yield together.slice(0, last)
        waiting, rows = [together.slice(last)], rows - last
    if rows:
        yield pa.concat_tables(waiting)
