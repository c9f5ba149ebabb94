"""The subject digests of a stream, cached in memory between reads."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import pyarrow as pa

from retention.context.file_rows import FileRows
from retention.context.subject_counts import counts_in_pieces
from retention.core.subjects import matching_mask
from retention.ports import Store
from retention.schemas.files import SUBJECT_COUNTS_OF_FILES

MOST_IN_MEMORY = 8_000_000
"""Maximum messages of a stream with cached digests, up to a hundred bytes each; larger streams are not cached."""


class DigestIndex:
    """The digests of the files at the last read."""

    def __init__(self) -> None:
        self._rows = FileRows(SUBJECT_COUNTS_OF_FILES, MOST_IN_MEMORY)

    def counts_of(self, store: Store, files: pa.Table, filters: Collection[str]) -> pa.Table:
        """The digests' rows of the subjects that a filter matches: shape `SUBJECT_COUNTS_OF_FILES`.

        Args:
            store: the table that has them.
            files: shape `FILE_STATS`.
            filters: with `*` for one token and a last `>` for one or more.

        Raises:
            DamagedError: a data file whose digest is lost cannot be read.
        """

        def matching(counts: pa.Table) -> pa.Table:
            return counts.filter(matching_mask(counts["subject"], filters))

        return self._rows.chosen(files, partial(counts_in_pieces, store), matching)
