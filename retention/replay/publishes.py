"""Stored messages as publishes to a server: their sizes and TTLs there, and the refusals that they bring on alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core import headers
from retention.core.headers import (
    EXPECTED_LAST_SEQ,
    EXPECTED_MSG_ID,
    EXPECTED_STREAM,
    EXPECTED_SUBJECT,
    EXPECTED_SUBJECT_SEQ,
)
from retention.core.message_rows import Storage, accounted_sizes
from retention.core.subjects import matching_mask
from retention.layout.ttl_clamp import clamp_ttls
from retention.rules.replay.fates import FOREIGN_SUBJECT
from retention.rules.replay.publishes import (
    ACCEPTED,
    NO_ROLLUP,
    PUBLISHES,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    Expectation,
    Publishes,
)

READ_COLUMNS = ("seq", "subject", "ts_ns", "headers", "size", "msg_id")
"""The columns of stored messages that a replay reads; payloads are never among them."""
TOO_LARGE, LONG_HEADERS, OTHER_STREAM = 10054, 10097, 10060
NO_TTLS, INVALID_TTL, NO_ROLLUPS = 10166, 10165, 10111
_ROLLUPS = {b"sub": ROLLUP_SUBJECT, b"all": ROLLUP_ALL}
_EXPECTED = "\r\nNats-Expected-"


def publishes_of(stored: pa.Table, stored_as: Storage, config: StreamConfig) -> Publishes:
    """Stored messages as publishes to a server with a stream of this configuration.

    Args:
        stored: `READ_COLUMNS`, ascending by `seq`.
        stored_as: the storage by which their sizes are counted.
        config: of the stream that the server has.
    """
    blocks = _one_chunk(stored["headers"])
    clamped = clamp_ttls(pa.chunked_array([blocks]), config)
    subject_bytes, header_bytes = (_lengths(stored["subject"]), _lengths(blocks))
    payload_bytes = _payload_bytes(stored["size"], subject_bytes, header_bytes, stored_as)
    sizes = accounted_sizes(
        pa.array(subject_bytes),
        pa.array(_lengths(clamped)),
        pa.array(payload_bytes),
        config.storage,
    )
    rollups, late = _rollups(blocks, config)
    seconds = headers.ttls(blocks)
    late = _first(late, np.where(seconds == headers.UNREADABLE_TTL, INVALID_TTL, ACCEPTED))
    early = _early(stored["subject"], blocks, header_bytes, payload_bytes, config)
    columns = {
        "seq": stored["seq"],
        "subject": stored["subject"],
        "ts_ns": stored["ts_ns"],
        "size": sizes,
        "deadline_ns": headers.ttl_deadlines(clamped, stored["ts_ns"]),
        "silent": headers.is_marker(blocks),
        "msg_id": stored["msg_id"],
        "rollup": pa.array(rollups),
        "early": pa.array(early),
        "late": pa.array(late),
    }
    if config.sync is not None:
        columns |= _accepted(early, len(blocks))
    table = pa.table([columns[name] for name in PUBLISHES.names], names=PUBLISHES.names)
    expectations = {} if config.sync is not None else _expectations(stored["seq"], blocks)
    return Publishes(table.cast(PUBLISHES), expectations)


def _accepted(early: np.ndarray, count: int) -> dict[str, pa.Array]:
    """The refusals of messages that a live server has accepted: only the limits of this configuration refuse them."""
    large = np.where(early == TOO_LARGE, early, ACCEPTED)
    return {"early": pa.array(large), "late": pa.array(np.full(count, ACCEPTED))}


def _early(
    subjects: pa.ChunkedArray,
    blocks: pa.Array,
    header_bytes: np.ndarray,
    payload_bytes: np.ndarray,
    config: StreamConfig,
) -> np.ndarray:
    """The codes of refusals that come before expectations and duplicates."""
    codes = np.zeros(len(blocks), dtype=np.int64)
    if config.subject_transform is None and config.sync is None:
        encoded = subjects.combine_chunks().dictionary_encode()
        known = np.asarray(matching_mask(encoded.dictionary, config.subjects), dtype=bool)
        codes = np.where(known[encoded.indices.to_numpy()], ACCEPTED, FOREIGN_SUBJECT)
    if config.max_msg_size > 0:
        above = header_bytes + payload_bytes > config.max_msg_size
        codes = _first(codes, np.where(above, TOO_LARGE, ACCEPTED))
    long = header_bytes > headers.MAX_BLOCK_BYTES
    codes = _first(codes, np.where(long, LONG_HEADERS, ACCEPTED))
    rows, names = headers.first_values(blocks, EXPECTED_STREAM)
    foreign = np.zeros(len(blocks), dtype=np.int64)
    foreign[rows] = [
        OTHER_STREAM if name not in (b"", config.name.encode()) else ACCEPTED
        for name in names.to_pylist()
    ]
    codes = _first(codes, foreign)
    if config.allow_msg_ttl:
        return codes
    seconds = headers.ttls(blocks)
    asks = (seconds != 0) & (seconds != headers.UNREADABLE_TTL)
    return _first(codes, np.where(asks, NO_TTLS, ACCEPTED))


def _rollups(blocks: pa.Array, config: StreamConfig) -> tuple[np.ndarray, np.ndarray]:
    """The roll-up of each message, and the code of those that are not permitted."""
    kinds = np.full(len(blocks), NO_ROLLUP, dtype=np.int8)
    codes = np.zeros(len(blocks), dtype=np.int64)
    permitted = config.allow_rollup_hdrs and not config.deny_purge
    rows, values = headers.first_values(blocks, headers.ROLLUP)
    for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
        kind = _ROLLUPS.get(value.lower(), NO_ROLLUP)
        if permitted and kind != NO_ROLLUP:
            kinds[row] = kind
        elif value:
            codes[row] = NO_ROLLUPS
    return kinds, codes


def _expectations(seqs: pa.ChunkedArray, blocks: pa.Array) -> Mapping[int, Expectation]:
    rows = pc.indices_nonzero(pc.fill_null(pc.match_substring(blocks, _EXPECTED), False))  # noqa: FBT003
    texts = zip(seqs.take(rows).to_pylist(), blocks.take(rows).to_pylist(), strict=True)
    expectations = {seq: _expectation(block) for seq, block in texts}
    return {seq: each for seq, each in expectations.items() if each != Expectation()}


def _expectation(block: bytes) -> Expectation:
    subject = headers.lookup(block, EXPECTED_SUBJECT)
    return Expectation(
        headers.lookup(block, EXPECTED_LAST_SEQ) or None,
        headers.lookup(block, EXPECTED_SUBJECT_SEQ) or None,
        subject.decode(errors="replace") if subject else None,
        headers.lookup(block, EXPECTED_MSG_ID) or None,
    )


def _payload_bytes(
    sizes: pa.ChunkedArray, subject_bytes: np.ndarray, header_bytes: np.ndarray, storage: Storage
) -> np.ndarray:
    """The lengths of payloads, from the sizes that their storage counts."""
    nothing = pa.array(np.zeros(len(sizes), dtype=np.int64))
    empty = accounted_sizes(pa.array(subject_bytes), pa.array(header_bytes), nothing, storage)
    return sizes.to_numpy() - empty.to_numpy()


def _first(codes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The earlier of two refusals of each message."""
    return np.where(codes == ACCEPTED, others, codes)


def _lengths(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    lengths = pc.fill_null(pc.binary_length(values), 0)
    return np.asarray(lengths).astype(np.int64)


def _one_chunk(values: pa.ChunkedArray) -> pa.Array:
    return pa.array([], pa.binary()) if not len(values) else values.combine_chunks()
