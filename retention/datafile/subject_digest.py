"""The subject digest of a data file with its number of message ids: counted, packed into bytes, and unpacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from retention.storage.checksum import stripped, with_hash
from retention.storage.crash_points import Step
from retention.storage.sidecar import Label, Record, Sidecar
from schemas.files import SUBJECT_COUNTS

_IDS = b"retention.ids"


@dataclass(frozen=True)
class SubjectDigest:
    """The subjects and the number of ids in one data file."""

    counts: pa.Table
    """Shape `SUBJECT_COUNTS`, sorted by subject."""
    ids: int | None = None
    """The number of messages of the file with an id, hidden ones too; None if not known."""


def count_subjects(rows: pa.Table) -> pa.Table:
    """The subject digest of rows with `subject` and `seq`: shape `SUBJECT_COUNTS`, sorted by subject."""
    counted = rows.group_by("subject", use_threads=False).aggregate(
        [("seq", "count"), ("seq", "max")]
    )
    columns = [counted["subject"], counted["seq_count"], counted["seq_max"]]
    return pa.table(columns, schema=SUBJECT_COUNTS).sort_by("subject")


def digest_at(location: str) -> Sidecar[SubjectDigest]:
    """The subject digest that lies at a location: whatever is in doubt is counted again from the data file."""
    return Sidecar(location, _DigestCodec(), Step.DATA_COUNTED)


def pack(digest: SubjectDigest) -> bytes:
    """A digest as bytes: an Arrow file, which reads several times faster than Parquet, and its hash.

    A flipped bit in a digest would become a wrong message that stays.
    """
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    ids = None if digest.ids is None else {_IDS: str(digest.ids)}
    schema = SUBJECT_COUNTS.with_metadata(ids)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_table(digest.counts.combine_chunks().replace_schema_metadata(schema.metadata))
    return with_hash(sink.getvalue().to_pybytes())


def unpack(content: bytes) -> SubjectDigest:
    """The digest that `pack` made these bytes of.

    Raises:
        ValueError: they are anything else.
    """
    body, _ = stripped(content)
    opened = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(body)))
    ids = (opened.schema.metadata or {}).get(_IDS)
    counts = opened.read_all().replace_schema_metadata(None)
    return SubjectDigest(counts, None if ids is None else int(ids))


class _DigestCodec:
    """A digest without a label: the data file beside it never changes, and has no other."""

    def write(self, sink: Any, _: Label, value: SubjectDigest) -> None:
        """Write a digest."""
        sink.write(pack(value))

    def read(self, source: pa.NativeFile) -> Record[SubjectDigest]:
        """Read a digest."""
        return Record(Label(), unpack(source.read()))
