"""A writer of messages to several files at once, split by deadline, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa

from retention.core.inventory import DataFile
from retention.datafile import parquet
from retention.datafile.parquet import ROW_GROUP_ROWS, open_message_writer
from retention.layout.deadline_buckets import bucket_ends, buckets_of, lifetime_classes

BUFFER_BYTES = 16 << 20
"""The approximate bytes to decode, and to buffer before writing, at a time; each payload may be a megabyte."""


class TableBuffer:
    """A buffer of tables, up to a row group or `BUFFER_BYTES`."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.rows = self.nbytes = 0

    def takes(self, table: pa.Table) -> bool:
        """Buffer one more table; True once the buffer is full."""
        if table.num_rows:
            self._tables.append(table)
            self.rows += table.num_rows
            self.nbytes += table.nbytes
        return self.rows >= ROW_GROUP_ROWS or self.nbytes >= BUFFER_BYTES

    def emptied(self) -> pa.Table:
        """Empty the buffer, and return its content as one table."""
        whole = pa.concat_tables(self._tables)
        self._tables, self.rows, self.nbytes = [], 0, 0
        return whole


def write_by_deadline(targets: Sequence[DataFile], batches: Iterable[pa.Table]) -> list[DataFile]:
    """Split messages among files by deadline (`layout.deadline_buckets`), keeping their order; durable on return.

    The messages buffered before the first file begins determine the split.

    Args:
        targets: the files to choose from; a single one takes all messages.
        batches: tables of shape `FILE_COLUMNS`.

    Returns:
        The written files, with their digests.
    """
    if len(targets) == 1:
        sha256 = parquet.write_messages(targets[0].location, batches)
        return [replace(targets[0], sha256=sha256)]
    ends: np.ndarray | None = None
    with ExitStack() as open_files:
        writers = {}
        for rows in in_large_parts(batches):
            if ends is None:
                ends = bucket_ends(lifetime_classes(rows), rows["size"].to_numpy(), len(targets))
            number = buckets_of(rows, ends)
            for group in np.unique(number).tolist():
                if group not in writers:
                    writers[group] = open_files.enter_context(
                        open_message_writer(targets[group].location)
                    )
                write, _ = writers[group]
                write(rows.filter(pa.array(number == group)))
    digests = {group: digest.hexdigest() for group, (_, digest) in writers.items()}
    return [replace(targets[group], sha256=sha256) for group, sha256 in digests.items()]


def in_large_parts(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of a row group or `BUFFER_BYTES`."""
    held = TableBuffer()
    for batch in batches:
        if held.takes(batch):
            yield held.emptied()
    if held.rows:
        yield held.emptied()
