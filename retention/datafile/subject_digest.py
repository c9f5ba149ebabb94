"""The record of a data file: its subject digest, number of message ids, deletions, and the digest of its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.schemas.files import SUBJECT_COUNTS
from retention.storage import files
from retention.storage.checksum import stripped, with_hash
from retention.storage.crash_points import Step
from retention.storage.sidecar import Sidecar, SidecarLabel, SidecarRecord
from retention.storage.tables import encode_file

_IDS, _DELETIONS, _SHA256 = b"retention.ids", b"retention.deletions", b"retention.sha256"
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_SMALL = 1 << 20
"""The length up to which handing the columns of a digest to threads takes longer than decompressing them."""

MESSAGES_AT_ONCE = 4_000_000
"""The maximum messages of the files with digests in memory at one time; a digest has at most a row per message."""


@dataclass(frozen=True)
class SubjectDigest:
    """The subjects, the number of ids and the deletions in one data file, and the digest of its bytes."""

    counts: pa.Table
    """Shape `SUBJECT_COUNTS`, sorted by subject."""
    ids: int | None = None
    """The number of messages of the file with an id, hidden ones included; None if unknown."""
    packed_deletions: bytes | None = None
    """The deletions of the file from `pack_deletions`, hidden ones included; None if not yet read."""
    sha256: str | None = None
    """The SHA-256 of the data file's bytes, in hex: taken while they were written, or recorded by a verification."""


def count_subjects(rows: pa.Table) -> pa.Table:
    """The subject digest of rows with `subject`, as strings or codes of a dictionary, and `seq`.

    Returns:
        Shape `SUBJECT_COUNTS`, sorted by subject.
    """
    if pa.types.is_string(rows["subject"].type) and not rows["subject"].null_count:
        counted = _counted_in_order(rows)
        if counted is not None:
            return counted
    subjects, names = rows["subject"], None
    if pa.types.is_dictionary(subjects.type):
        coded = subjects.combine_chunks()
        # Other writers may repeat a subject in a dictionary.
        is_unique = pc.count_distinct(coded.dictionary).as_py() == len(coded.dictionary)
        names = coded.dictionary if is_unique else None
        subjects = coded.indices if is_unique else coded.cast(pa.string())
    counted = (
        pa.table({"subject": subjects, "seq": rows["seq"]})
        .group_by("subject", use_threads=False)
        .aggregate([("seq", "count"), ("seq", "max")])
    )
    subjects = counted["subject"] if names is None else names.take(counted["subject"])
    columns = [subjects, counted["seq_count"], counted["seq_max"]]
    return pa.table(columns, schema=SUBJECT_COUNTS).sort_by("subject")


def _counted_in_order(rows: pa.Table) -> pa.Table | None:
    """`count_subjects` without hashing subjects; None: they begin too much alike."""
    from retention.core.text_order import text_order

    subjects = rows["subject"].combine_chunks()
    ordered = text_order(subjects)
    if ordered is None:
        return None
    order, repeats = ordered
    starts = np.flatnonzero(~repeats)
    messages = np.diff(np.append(starts, len(order)))
    seqs = rows["seq"].to_numpy()[order]
    last_seq = np.maximum.reduceat(seqs, starts) if len(starts) else seqs
    columns = [subjects.take(pa.array(order[starts])), messages, last_seq]
    return pa.table(columns, schema=SUBJECT_COUNTS)


def digest_at(location: str) -> Sidecar[SubjectDigest]:
    """The subject digest at a location; a doubtful one is counted again from the data file."""
    return Sidecar(location, _DigestCodec(), Step.DATA_COUNTED)


def pack(digest: SubjectDigest) -> bytes:
    """A digest as bytes: an Arrow file, which reads several times faster than Parquet, and its hash.

    Without the hash, a flipped bit in a digest could keep the wrong message.
    """
    beside: dict[bytes, str | bytes] = {}
    if digest.ids is not None:
        beside[_IDS] = str(digest.ids)
    if digest.packed_deletions is not None:
        beside[_DELETIONS] = digest.packed_deletions
    if digest.sha256 is not None:
        beside[_SHA256] = digest.sha256
    schema = SUBJECT_COUNTS.with_metadata(beside or None)
    counts = digest.counts.combine_chunks().replace_schema_metadata(schema.metadata)
    return with_hash(encode_file(counts.schema, [counts], _LZ4))


def unpack(content: bytes) -> SubjectDigest:
    """The digest from the bytes of `pack`.

    Raises:
        ValueError: the bytes are anything else.
    """
    body, _ = stripped(content)
    opened = _opened_arrow(body)
    beside = opened.schema.metadata or {}
    ids, sha256 = beside.get(_IDS), beside.get(_SHA256)
    counts = opened.read_all().replace_schema_metadata(None)
    return SubjectDigest(
        counts,
        None if ids is None else int(ids),
        beside.get(_DELETIONS),
        None if sha256 is None else sha256.decode(),
    )


def pack_deletions(deletions: pa.Table) -> bytes:
    """Deletions of shape `DELETIONS` as bytes."""
    return encode_file(deletions.schema, [deletions.combine_chunks()], _LZ4)


def unpack_deletions(packed: bytes) -> pa.Table:
    """The deletions from the bytes of `pack_deletions`; shape `DELETIONS`.

    Raises:
        ValueError: the bytes are anything else.
    """
    return _opened_arrow(packed).read_all()


def _opened_arrow(content: bytes | memoryview) -> pa.ipc.RecordBatchFileReader:
    options = pa.ipc.IpcReadOptions(use_threads=len(content) > _SMALL)
    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(content)), options=options)


class _DigestCodec:
    """A digest without a label: its data file is immutable, and has only this one."""

    def write(self, sink: Any, _: SidecarLabel, value: SubjectDigest) -> None:
        """Write a digest."""
        sink.write(pack(value))

    def read(self, place: str) -> SidecarRecord[SubjectDigest]:
        """Read a digest."""
        return SidecarRecord(SidecarLabel(), unpack(files.read_unchanging(place) or b""))
