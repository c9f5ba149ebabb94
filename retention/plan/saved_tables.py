"""Tables of saved plans: Parquet files written and read in pieces, and verified by digest."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from tempfile import SpooledTemporaryFile

import pyarrow as pa
import pyarrow.parquet as pq

from retention.storage import files
from retention.storage.tables import delta_encodings, encoded, pieces_of_group, row_groups

GROUP_VALUES = 1 << 20
"""The maximum rows of a row group, and values of its lists; the lists of one row are never split."""
READ_VALUES = 1 << 16
"""The approximate number of rows, or list values, decoded at a time."""
_SPOOLED_BYTES = 8 << 20


def is_table(columns: set[str], source: pa.NativeFile) -> bool:
    """Whether an open file is a Parquet table of these columns.

    Raises:
        ValueError, OSError: it is not a Parquet file.
    """
    return set(pq.ParquetFile(source).schema_arrow.names) == columns


def write_table(location: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> str:
    """Write a table from pieces; returns the SHA-256 of the file, independent of the pieces.

    Args:
        location: the location of the file; existing content is replaced.
        schema: the schema of every piece.
        tables: the pieces.

    Raises:
        StorageError: the storage failed.
    """
    dictionary = [name for name in ("action", "rule") if name in schema.names]
    writer = partial(
        pq.ParquetWriter,
        schema=schema,
        compression="zstd",
        use_dictionary=dictionary,
        column_encoding=delta_encodings(schema, dictionary),
        write_statistics=False,
    )
    digest = hashlib.sha256()
    with files.create(location) as sink:
        for piece in encoded(writer, row_groups(tables, schema, GROUP_VALUES, GROUP_VALUES)):
            digest.update(piece)
            sink.write(piece)
    return digest.hexdigest()


class VerifiedTable:
    """A private, immutable copy of a table; deleted with the object."""

    def __init__(self) -> None:
        self.content = SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115
        weakref.finalize(self, self.content.close)

    def pieces(self) -> Iterator[pa.Table]:
        """The rows in pieces; at least one table, possibly empty.

        Raises:
            ValueError, OSError: they cannot be decoded.
        """
        opened = pq.ParquetFile(self.content)
        yield opened.schema_arrow.empty_table()
        for group in range(opened.metadata.num_row_groups):
            yield from pieces_of_group(opened, group, READ_VALUES)


def verified_table(location: str, sha256: str) -> VerifiedTable | None:
    """Copy a table; None: the file has another digest.

    Raises:
        FileNotFoundError: the file does not exist.
        StorageError: the storage failed.
    """
    copy, digest = VerifiedTable(), hashlib.sha256()
    for piece in files.chunks(location, _SPOOLED_BYTES):
        digest.update(piece)
        copy.content.write(piece)
    return copy if digest.hexdigest() == sha256 else None
