"""Ranges of subjects of about equal length: their bounds, from samples of digests, and the digests cut there.

Digests are sorted by subject, so a range of a long one is a slice. The rows of short ones are gathered by range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.integer_sort import argsort
from retention.core.neighbours import runs_within
from retention.engine_port import Part, Task
from retention.planners.packed_rows import packed, unpacked

RANGE_BYTES = 16 << 20
"""The approximate length of digests per range; they take several times as much in memory."""
SAMPLES = 64
"""The subjects of a sample per range."""
GATHERED = 64
"""The rows per range below which the rows of several digests are gathered; a slice takes as long as so many."""

DEALT = pa.schema(
    [
        pa.field("file", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("messages", pa.int64()),
        pa.field("last_seq", pa.int64()),
    ]
)
"""Digests to shuffle: `file` is the number of a file with remaining messages, ascending."""

_HALVES = ("low", "high")
_CUT = pa.schema([*list(DEALT)[:-1], *(pa.field(half, pa.uint32()) for half in _HALVES)])
"""`DEALT` with the halves of `last_seq`, for which LZ4 takes a tenth of the time."""
_NO_SUBJECTS = pa.nulls(0, pa.string())

Digests = tuple[Task, Sequence[int]]
"""A task, and the length of each of its digests."""
Read = Callable[[Task, int], pa.Table]
"""A function that reads one digest of a task, by its number there; shape `DEALT`, sorted by subject."""

_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo one, are evenly spread, also within equal parts of the interval."""


def sampled(read: Read[Task], digests: Digests[Task]) -> pa.Array:
    """Subjects of a task, `SAMPLES` per range, evenly spread over the bytes of its digests.

    Digests without any of these subjects are not read.
    """
    task, lengths = digests
    wanted = max(1, SAMPLES * sum(lengths) // RANGE_BYTES)
    # A lost digest has no length.
    ends = np.cumsum(np.maximum(lengths, 1))
    places = np.arange(wanted) * _GOLDEN % 1 * ends[-1]
    holders = np.searchsorted(ends, places, side="right")
    shares = (ends[holders] - places) / np.diff(ends, prepend=0)[holders]
    subjects = [_NO_SUBJECTS]
    for at in np.unique(holders).tolist():
        column = read(task, at)["subject"].combine_chunks()
        rows = np.ceil(shares[holders == at] * len(column)).astype(np.int64) - 1
        subjects.append(column.take(pa.array(rows[: len(column)])))
    return pa.concat_arrays(subjects)


def bounds_of(samples: Iterable[pa.Array], ranges: int) -> pa.Array:
    """The first subject of each range but the first, ascending; fewer ranges, if a few subjects have most rows.

    >>> bounds_of([pa.array(["a", "d"]), pa.array(["b", "c"])], 2).to_pylist()
    ['c']
    """
    subjects = pa.concat_arrays([_NO_SUBJECTS, *samples]).sort()
    ranges = min(ranges, len(subjects))
    places = [len(subjects) * number // ranges for number in range(1, ranges)]
    return subjects.take(pa.array(places, pa.int64())).unique()


def deal_subjects(read: Read[Task], bounds: pa.Array, digests: Digests[Task]) -> Iterator[Part]:
    """Cut the digests of a task into ranges of subjects; contents are batches for `DecideRange`.

    Args:
        read: reads a digest.
        bounds: as from `bounds_of`.
        digests: the task.
    """
    task, lengths = digests
    tables = [read(task, at) for at in range(len(lengths))]
    runs = runs_within(list(map(len, tables)), GATHERED * (len(bounds) + 1))
    cut = [_by_range(tables[start:end], bounds) for start, end in runs]
    for number in range(len(bounds) + 1):
        parts = [
            rows.slice(ends[number], ends[number + 1] - ends[number])
            for rows, ends in cut
            if ends[number + 1] > ends[number]
        ]
        if parts:
            yield number, packed(pa.concat_tables(parts))


def dealt_rows(contents: Sequence[bytes]) -> pa.Table:
    """The rows of parts of a range, shape `DEALT`, in order."""
    rows = unpacked(contents, _CUT)
    halves = np.empty((len(rows), 2), dtype=np.uint32)
    for at, half in enumerate(_HALVES):
        halves[:, at] = rows[half].to_numpy()
    last_seq = pa.array(halves.view(np.int64).ravel())
    return rows.drop_columns(list(_HALVES)).append_column(DEALT.field("last_seq"), last_seq)


def _by_range(digests: Sequence[pa.Table], bounds: pa.Array) -> tuple[pa.Table, Sequence[int]]:
    """The rows of digests in order of ranges, `_CUT`, with the limits of the ranges among them."""
    if len(digests) == 1:
        [digest] = digests
        inner = pc.search_sorted(digest["subject"].chunk(0), bounds).to_pylist()
        return _halved(digest), [0, *inner, len(digest)]
    rows = pa.concat_tables(digests).combine_chunks()
    ranges = pc.search_sorted(bounds, rows["subject"], side="right").to_numpy()
    lengths = np.bincount(ranges, minlength=len(bounds) + 1)
    in_order = rows.take(pa.array(argsort(ranges)))
    return _halved(in_order), [0, *np.cumsum(lengths).tolist()]


def _halved(digest: pa.Table) -> pa.Table:
    halves = digest["last_seq"].to_numpy().view(np.uint32).reshape(-1, 2).T
    return pa.table([*digest.columns[:-1], *map(np.ascontiguousarray, halves)], schema=_CUT)
