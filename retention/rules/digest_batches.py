"""Batches of subject digests for lookups of known subjects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

_LEAST_ROWS = 1 << 20


def for_lookups(digests: Iterable[pa.Table], subjects: int) -> Iterator[pa.Table]:
    """Join digests to batches that are worth a lookup, because every lookup hashes the subjects again.

    Args:
        digests: of a few files each.
        subjects: the number of subjects to look up.
    """
    pending: list[pa.Table] = []
    for table in digests:
        pending.append(table)
        if sum(map(len, pending)) >= max(_LEAST_ROWS, subjects):
            yield pa.concat_tables(pending)
            pending = []
    if pending:
        yield pa.concat_tables(pending)
