"""The subject digests of very many files, in batches: together they may exceed the memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.neighbours import runs_within
from retention.datafile.subject_digest import MESSAGES_AT_ONCE
from retention.ports import Store

FILES_AT_ONCE = 1_000


def counts_in_pieces(store: Store, files: pa.Table) -> Iterator[pa.Table]:
    """Subject digests as from `Store.subject_counts`, for some files at a time; `file` numbers all of them.

    Args:
        store: the table that has them.
        files: shape `FILE_STATS`.

    Raises:
        DamagedError: a data file whose digest is lost cannot be read.
    """
    least = MESSAGES_AT_ONCE // FILES_AT_ONCE
    weights = [max(messages, least) for messages in files["messages"].to_pylist()]
    for first, end in runs_within(weights, MESSAGES_AT_ONCE):
        counts = store.subject_counts(files.slice(first, end - first))
        at = counts.schema.get_field_index("file")
        yield counts.set_column(at, counts.schema.field(at), pc.add(counts["file"], first))
