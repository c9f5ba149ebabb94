"""Rows of a message table from raw messages: time, size, deadline, marker and message id."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from retention.core import headers
from retention.schemas.messages import FILE_COLUMNS

Storage = Literal["file", "memory"]

_MEMORY_OVERHEAD = 16
_FILE_OVERHEAD = 30
_FILE_HEADERS_OVERHEAD = 4


def complete_rows(raw: pa.Table, storage: Storage) -> pa.Table:
    """Rows of shape `FILE_COLUMNS` from the messages of a producer or a backup.

    Args:
        raw: `subject`, `headers` (binary; null or empty for none), `payload` (null for empty),
            `ts_ns`, and if known `seq` and `origin_ts_ns`.
        storage: the broker's storage, which determines how a message's bytes are counted.

    Returns:
        The same messages in the same order; no `seq` if `raw` has none.
    """
    ts_ns = raw["ts_ns"].cast(pa.int64())
    subject = raw["subject"].cast(pa.string())
    blocks = _blocks(raw["headers"].cast(pa.binary()))
    payload = pc.fill_null(raw["payload"].cast(pa.binary()), b"")
    columns = {
        "subject": subject,
        "ts_ns": ts_ns,
        "time": time_of(ts_ns),
        "headers": blocks,
        "payload": payload,
        "size": message_sizes(subject, blocks, payload, storage),
        "deadline_ns": headers.ttl_deadlines(blocks, ts_ns),
        "marker": headers.is_marker(blocks),
        "msg_id": headers.msg_ids(blocks),
        "origin_ts_ns": pa.nulls(raw.num_rows, pa.int64()),
    }
    columns |= {name: raw[name] for name in ("seq", "origin_ts_ns") if name in raw.schema.names}
    schema = pa.schema([field for field in FILE_COLUMNS if field.name in columns])
    return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)


def message_sizes(
    subject: pa.ChunkedArray, blocks: pa.ChunkedArray, payload: pa.ChunkedArray, storage: Storage
) -> pa.ChunkedArray:
    """The broker's byte accounting of each message (the size a NATS file or memory store reports)."""
    columns = (subject, blocks, payload)
    subjects, headings, contents = (pc.fill_null(pc.binary_length(column), 0) for column in columns)
    return accounted_sizes(subjects, headings, contents, storage)


def accounted_sizes(
    subject_bytes: pa.ChunkedArray,
    header_bytes: pa.ChunkedArray,
    payload_bytes: pa.ChunkedArray,
    storage: Storage,
) -> pa.ChunkedArray:
    """The broker's byte accounting from lengths; zero header bytes mean no headers."""
    header_bytes = header_bytes.cast(pa.int64())
    counted = pc.add(pc.add(subject_bytes.cast(pa.int64()), header_bytes), payload_bytes)
    if storage == "memory":
        return pc.add(counted, _MEMORY_OVERHEAD)
    with_headers = pc.greater(header_bytes, 0).cast(pa.int64())
    record = pc.add(_FILE_OVERHEAD, pc.multiply(with_headers, _FILE_HEADERS_OVERHEAD))
    return pc.add(counted, record)


def _blocks(given: pa.ChunkedArray) -> pa.ChunkedArray:
    if given.null_count == len(given):
        return given
    return pc.if_else(pc.equal(pc.binary_length(given), 0), pa.scalar(None, pa.binary()), given)


def time_of(ts_ns: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column `time` of instants in nanoseconds: UTC timestamps, truncated to microseconds."""
    return pa.chunked_array([ts_ns.to_numpy() // 1_000]).cast(pa.timestamp("us", tz="UTC"))


def later_mask(ts_ns: pa.ChunkedArray, after_ns: int) -> pa.ChunkedArray:
    """A mask of the instants after `after_ns`; the bound may exceed 64 bits."""
    return pa.chunked_array([ts_ns.to_numpy() > after_ns])
