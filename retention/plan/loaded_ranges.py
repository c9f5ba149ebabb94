"""Ranges of a saved plan, as they come from its files: few are held, many wait in scratch files of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from retention.plan.removed_ranges import RemovedRanges, StoredPart, store_ranges
from retention.storage import files
from retention.storage.scratch_files import ScratchDirectory, local_directory
from schemas.plan import REMOVED_RANGES

MOST_HELD = 1 << 18
"""Ranges of one plan that stay in memory; of more, none does."""
_OF_PART = 1 << 16
"""Ranges that are stored together, as far as whole files let them: who needs those of one file reads them all."""


def loaded_ranges(tables: Iterable[pa.Table]) -> RemovedRanges:
    """Ranges that come some at a time.

    Args:
        tables: shape `REMOVED_RANGES`, ascending by file, also from one table to the next.

    Raises:
        OSError: they are many, and cannot be kept.
    """
    held: list[pa.Table] = [REMOVED_RANGES.empty_table()]
    parts: list[StoredPart] = []
    rows, scratch = 0, None
    for piece in _whole_files(tables):
        held.append(piece)
        rows += piece.num_rows
        if rows > MOST_HELD:
            scratch = scratch or local_directory()
            numbered = enumerate((some for some in held if some.num_rows), start=len(parts))
            parts += [_stored(some, number, scratch) for number, some in numbered]
            held = [REMOVED_RANGES.empty_table()]
    return RemovedRanges(pa.concat_tables(held), tuple(parts))


def _stored(ranges: pa.Table, number: int, scratch: ScratchDirectory) -> StoredPart:
    stored = store_ranges(ranges, files.join(scratch.location, f"{number}.arrow"))
    return StoredPart.of(replace(stored, owner=scratch))


def _whole_files(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same ranges in pieces of `_OF_PART` or more, of which no two have a file in common."""
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
