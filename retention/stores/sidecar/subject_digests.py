"""Subject digests: the number of messages of each subject in each data file, without opening the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile
from retention.datafile import parquet
from retention.datafile.subject_digest import count_subjects, digest_at
from retention.schemas.files import SUBJECT_COUNTS_OF_FILES
from retention.storage import files
from retention.storage.parallel import in_threads
from retention.stores.layout import Layout, identities

_COUNTED = ("subject", "seq")


def subject_counts(
    layout: Layout, table: pa.Table, locate: Callable[[pa.Table], list[DataFile]]
) -> pa.Table:
    """The digests of the files in `table` (shape `FILE_STATS`); each row has its file's row number there.

    A digest that is lost, or disagrees with the statistics, is rebuilt from the data file.
    """

    def digest(number: int) -> pa.Table:
        row = table.slice(number, 1)
        place = layout.data_file(identities(row)[0], "").digest_location
        counted = _counted(place, row["messages"][0].as_py(), lambda: locate(row)[0])
        numbers = pa.array(np.full(len(counted), number), pa.int64())
        return counted.add_column(0, SUBJECT_COUNTS_OF_FILES.field("file"), numbers)

    digests = in_threads(digest, range(table.num_rows), files.read_parallelism(layout.root))
    return pa.concat_tables([SUBJECT_COUNTS_OF_FILES.empty_table(), *digests])


def digest_of(file: DataFile, messages: int) -> pa.Table:
    """The digest of one data file of `messages` messages, shape `SUBJECT_COUNTS`; rebuilt as by `subject_counts`."""
    return _counted(file.digest_location, messages, lambda: file)


def ids_in(file: DataFile) -> int | None:
    """The number of messages with an id in a data file, hidden ones included; None if only the file itself can tell."""
    digest = digest_at(file.digest_location).load()
    return None if digest is None else digest.ids


def lengths(layout: Layout, table: pa.Table) -> list[int]:
    """The lengths of the digests of files; 0 for a digest that is lost."""
    places = [layout.data_file(row, "").digest_location for row in identities(table)]
    return [length or 0 for length in files.lengths(places)]


def _counted(place: str, messages: int, locate: Callable[[], DataFile]) -> pa.Table:
    counted = _read(place, messages)
    if counted is None:
        data = locate()
        parquet.describe(data)
        counted = _read(place, messages)
        if counted is None:
            # On read-only storage, the digest is not stored.
            counted = count_subjects(parquet.read_columns(data, _COUNTED)[0])
    return counted


def _read(location: str, messages: int) -> pa.Table | None:
    digest = digest_at(location).load()
    if digest is None:
        return None
    total = pc.sum(digest.counts["messages"], min_count=0).as_py()
    return digest.counts if total == messages else None
