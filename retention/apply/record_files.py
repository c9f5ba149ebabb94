"""Records of a run as files: Arrow tables followed by their digest, written and read some rows at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

import pyarrow as pa

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.errors import as_storage_errors
from retention.storage.tables import encode_file, encoded, in_shape

AT_A_TIME = 1 << 16
"""Rows of a record processed at a time."""
_DIGEST_BYTES = 32
"""The SHA-256 at the end of a record; without it a flipped bit would become a wrong number in the table."""
_MOST_OF_BATCH = 32 << 20
"""Average bytes of a batch that may be in memory at once."""
_CHUNK_BYTES = 8 << 20
_HEAD = 2
"""The tables of a record that are looked at before it is encoded."""
_FEW_ROWS = 256
"""The rows of a record up to which its compression takes longer than all else: a context for each buffer."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))
"""Ranges repeat their file and rule: a twelfth of their bytes, written in less time."""


@dataclass(frozen=True)
class RecordFile:
    """A verified record."""

    location: str
    end: int
    """The length of its table, without the digest."""

    def tables(self) -> Iterator[pa.Table]:
        """The rows in order, at most `AT_A_TIME` at a time.

        Raises:
            FileNotFoundError: it was deleted after it was verified.
            pyarrow.ArrowException: it is not a table.
            StorageError: the storage failed.
        """
        with (
            as_storage_errors(self.location, FileNotFoundError),
            self._opened() as source,
            pa.ipc.open_file(source, footer_offset=self.end) as reader,
        ):
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                for start in range(0, batch.num_rows, AT_A_TIME):
                    yield pa.Table.from_batches([batch.slice(start, AT_A_TIME)])

    def _opened(self) -> pa.NativeFile:
        """The opened file; a file of an earlier version may be one batch, so its rows load as they are read."""
        with (
            files.open_input(self.location) as source,
            pa.ipc.open_file(source, footer_offset=self.end) as reader,
        ):
            is_cut = self.end <= _MOST_OF_BATCH * max(reader.num_record_batches, 1)
        return files.open_input(self.location) if is_cut else files.open_mapped(self.location)


def content_of(schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """The bytes of an Arrow file of tables and its digest, one piece per table; a short file is not compressed."""
    cut = (
        in_shape(table.slice(start, AT_A_TIME).select(schema.names), schema).combine_chunks()
        for table in tables
        for start in range(0, table.num_rows, AT_A_TIME)
    )
    first = list(islice(cut, _HEAD))
    if _is_short(first):
        content = encode_file(schema, first)
        yield from (content, hashlib.sha256(content).digest())
        return
    digest, whole = hashlib.sha256(), chain(first, cut)
    # The name would keep these tables until the last one is written.
    del first
    for piece in encoded(partial(pa.ipc.new_file, schema=schema, options=_COMPRESSED), whole):
        digest.update(piece)
        yield piece
    yield digest.digest()


def _is_short(first: Sequence[pa.Table]) -> bool:
    """Whether a record has few rows, given its first two tables, if it has as many."""
    return len(first) < _HEAD and sum(table.num_rows for table in first) <= _FEW_ROWS


def verified(location: str, run: str, check: Callable[[pa.Table], None]) -> RecordFile | None:
    """A record that is intact, with pieces that all pass a check; None: it does not exist.

    Raises:
        DamagedError: it is damaged, or fails the check.
        StorageError: the storage failed.
    """
    digest, length, tail = hashlib.sha256(), 0, b""
    try:
        for chunk in files.chunks(location, _CHUNK_BYTES):
            together = tail + chunk
            digest.update(together[:-_DIGEST_BYTES])
            tail = together[-_DIGEST_BYTES:]
            length += len(chunk)
    except FileNotFoundError:
        return None
    if digest.digest() != tail:
        raise DamagedError(
            f"{location}: the record of the files of run {run} is damaged, so the run cannot be undone; nothing was "
            "changed; restore the record from a copy if there is one"
        )
    record = RecordFile(location, length - _DIGEST_BYTES)
    with refusing_undecodable(location, run):
        for table in record.tables():
            check(table)
    return record


@contextmanager
def refusing_undecodable(location: str, run: str) -> Iterator[None]:
    """Refuse a record that the block cannot decode, or rejects.

    Raises:
        DamagedError: it does.
    """
    try:
        yield
    except (ValueError, pa.ArrowException) as error:
        raise DamagedError(
            f"{location}: the record of the files of run {run} is not what a run writes ({error}), so the run cannot "
            "be undone; nothing was changed; restore the record from a copy if there is one"
        ) from error
