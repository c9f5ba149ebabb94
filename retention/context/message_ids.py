"""The message ids in the recent files of a stream, cached in memory between batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from retention.context.file_rows import NUMBER, FileRows
from retention.datafile.parquet import read_columns
from retention.ports import Store
from retention.schemas.messages import FILE_COLUMNS

MOST_IN_MEMORY = 1_000_000
"""Maximum messages of recent files with cached ids, up to a hundred bytes each; ids of more files are not cached."""
FOUND = ("seq", "ts_ns", "msg_id")
"""The columns of a found id."""
_IDS = pa.schema(
    [NUMBER, *(FILE_COLUMNS.field(name).with_nullable(nullable=True) for name in FOUND)]
)


class MessageIds:
    """The ids in the files at the last read."""

    def __init__(self) -> None:
        self._rows = FileRows(_IDS, MOST_IN_MEMORY)

    def among(self, store: Store, files: pa.Table, wanted: pa.Array) -> pa.Table:
        """The messages of files with one of the wanted ids: columns `FOUND`.

        Args:
            store: the table that has the files.
            files: shape `FILE_STATS`.
            wanted: ids.

        Raises:
            DamagedError: a file cannot be read.
        """

        def read(new: pa.Table) -> Iterator[pa.Table]:
            for number, file in enumerate(store.data_files(new)):
                rows, _ = read_columns(file, FOUND)
                rows = rows.filter(rows["msg_id"].is_valid())
                numbers = pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows)
                yield rows.add_column(0, NUMBER, numbers).cast(_IDS)

        def choose(rows: pa.Table) -> pa.Table:
            return rows.filter(pc.is_in(rows["msg_id"], value_set=wanted))

        return self._rows.chosen(files, read, choose).select(FOUND)
