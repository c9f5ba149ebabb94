"""The subject digest of a data file with its number of message ids: counted, packed into bytes, and unpacked."""

from __future__ import annotations

import pyarrow as pa
import xxhash

from schemas.files import SUBJECT_COUNTS

_IDS = b"retention.ids"
_CHECK_BYTES = 16
"""The length of the hash at the end: a flipped bit in a digest would make a wrong message stay."""


def count_subjects(rows: pa.Table) -> pa.Table:
    """The subject digest of rows with `subject` and `seq`: shape `SUBJECT_COUNTS`, sorted by subject."""
    counted = rows.group_by("subject", use_threads=False).aggregate(
        [("seq", "count"), ("seq", "max")]
    )
    columns = [counted["subject"], counted["seq_count"], counted["seq_max"]]
    return pa.table(columns, schema=SUBJECT_COUNTS).sort_by("subject")


def pack(counts: pa.Table, ids: int | None = None) -> bytes:
    """A digest as bytes: an Arrow file, which reads several times faster than Parquet, and its hash.

    Args:
        counts: the digest.
        ids: the number of the file's messages with an id; None if not known.
    """
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    schema = SUBJECT_COUNTS.with_metadata(None if ids is None else {_IDS: str(ids)})
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_table(counts.combine_chunks().replace_schema_metadata(schema.metadata))
    content: bytes = sink.getvalue().to_pybytes()
    return content + xxhash.xxh3_128_digest(content)


def unpack(content: bytes) -> pa.Table | None:
    """The digest in bytes that `pack` made; None for any other bytes."""
    opened = _opened(content)
    return None if opened is None else opened.read_all().replace_schema_metadata(None)


def unpack_ids(content: bytes) -> int | None:
    """The number of the file's messages with an id; None if `pack` did not get it, or did not make these bytes."""
    opened = _opened(content)
    ids = None if opened is None else (opened.schema.metadata or {}).get(_IDS)
    return None if ids is None else int(ids)


def _opened(content: bytes) -> pa.ipc.RecordBatchFileReader | None:
    table = memoryview(content)[:-_CHECK_BYTES]
    if xxhash.xxh3_128_digest(table) != content[-_CHECK_BYTES:]:
        return None
    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(table)))
