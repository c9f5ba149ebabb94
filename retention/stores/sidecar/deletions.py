"""Deletions in data files: read once from a file's headers, and stored in its subject digest."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.core import kv
from retention.core.inventory import DataFile
from retention.core.read_count import ReadCount
from retention.datafile import footers, parquet
from retention.datafile.row_groups import rows_in_order
from retention.datafile.subject_digest import digest_at, pack_deletions, unpack_deletions
from retention.schemas.files import DELETIONS
from retention.storage import files

_LOOKED_AT = ("subject", "seq", "ts_ns", "headers")


def kept_deletions(file: DataFile) -> pa.Table | None:
    """The stored deletions of a data file, shape `DELETIONS`; None if not yet read."""
    digest = digest_at(file.digest_location).load()
    if digest is None or digest.packed_deletions is None:
        return None
    return unpack_deletions(digest.packed_deletions)


def find_deletions(file: DataFile) -> tuple[pa.Table, ReadCount]:
    """Read and store the deletions of a data file: shape `DELETIONS`, and the cost of reading.

    One row group's headers are in memory at a time.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    groups = (_deleting(rows) for rows in rows_in_order(file, _LOOKED_AT))
    deletions = pa.concat_tables([DELETIONS.empty_table(), *groups])
    with files.if_writable():
        _keep(file, deletions)
    read = footers.compressed_bytes(parquet.open_messages(file), _LOOKED_AT)
    return deletions, ReadCount(1, read)


def _deleting(rows: pa.Table) -> pa.Table:
    """The rows that delete their subject; shape `DELETIONS`."""
    rows = rows.filter(rows["headers"].is_valid())
    deletes = pc.not_equal(kv.operations(rows["headers"]), kv.PUT)
    return rows.filter(deletes).select(DELETIONS.names).cast(DELETIONS)


def _keep(file: DataFile, deletions: pa.Table) -> None:
    place = digest_at(file.digest_location)
    digest = place.load()
    if digest is None:
        parquet.describe(file)
        digest = place.load()
    if digest is not None:
        place.write(replace(digest, packed_deletions=pack_deletions(deletions)))
