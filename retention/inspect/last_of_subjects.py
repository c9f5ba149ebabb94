"""The last sequences of any number of subjects, from their digests: a large set spills to a temporary file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

import numpy as np
import pyarrow as pa

from retention.core.hash_buckets import hash_buckets
from retention.engine_port import Part
from retention.engines.spool import Spool
from retention.planners.packed_rows import packed, unpacked
from retention.schemas.files import SUBJECT_COUNTS

HELD_SUBJECTS = 1 << 20
"""Subjects in memory, some hundred bytes each; if there are more, all are partitioned into buckets."""
BUCKETS = 256
_LEAST_FOLDED = 1 << 20
"""Minimum number of rows of digests that are merged at once."""
_LAST = pa.schema([SUBJECT_COUNTS.field(name) for name in ("subject", "last_seq")])


class LastOfSubjects:
    """Digests being reduced to the last sequence of each subject."""

    def __init__(self) -> None:
        self._held = _LAST.empty_table()
        self._pending: list[pa.Table] = []
        self._spool: Spool | None = None
        self._numbers = count()

    def add(self, counts: pa.Table) -> None:
        """Add the digests of more files: columns `subject` and `last_seq`.

        Raises:
            StorageError: the directory of temporary files is full.
        """
        self._pending.append(counts.select(_LAST.names).cast(_LAST))
        if sum(map(len, self._pending)) >= max(_LEAST_FOLDED, len(self._held)):
            self._fold()

    def seqs(self) -> np.ndarray:
        """The last sequence of each subject, ascending; the digests are released.

        Raises:
            StorageError: the directory of temporary files is full.
        """
        self._fold()
        last: np.ndarray = np.concatenate([*self._seqs_by_bucket(), _seqs(self._held)])
        last.sort()
        return last

    def close(self) -> None:
        """Delete the temporary file."""
        if self._spool is not None:
            self._spool.close()

    def _fold(self) -> None:
        self._held = _folded([self._held, *self._pending])
        self._pending = []
        if len(self._held) > HELD_SUBJECTS or self._spool is not None:
            self._put_aside()

    def _put_aside(self) -> None:
        self._spool = self._spool or Spool()
        number = next(self._numbers)
        for bucket, content in _dealt(self._held):
            self._spool.put(number, bucket, content)
        self._held = _LAST.empty_table()

    def _seqs_by_bucket(self) -> Iterator[np.ndarray]:
        if self._spool is not None:
            for bucket in self._spool.keys:
                yield _seqs(_folded([unpacked(self._spool.parts(bucket), _LAST)]))


def _dealt(last: pa.Table) -> Iterator[Part]:
    """The rows of each bucket of subjects."""
    # NumPy uses a radix sort for small integers, which takes a tenth of the time.
    bucket = hash_buckets(last["subject"], BUCKETS).astype(np.min_scalar_type(BUCKETS))
    ordered = last.combine_chunks().take(pa.array(np.argsort(bucket, kind="stable")))
    ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS)).tolist()
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            yield number, packed(ordered.slice(start, end - start))


def _folded(parts: Iterable[pa.Table]) -> pa.Table:
    last = pa.concat_tables(parts).group_by("subject").aggregate([("last_seq", "max")])
    return pa.table([last["subject"], last["last_seq_max"]], schema=_LAST)


def _seqs(last: pa.Table) -> np.ndarray:
    column: np.ndarray = last["last_seq"].to_numpy()
    return column
