"""Refusals of a publish that depend on messages and configuration alone, a whole batch at a time, with server codes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core import headers, subjects
from retention.core.headers import EXPECTED_STREAM
from retention.ingest.batch_headers import refuse_batch_ids, refuse_sources
from retention.ingest.counters import refuse_increments, refuse_uncounted
from retention.ingest.schedule_headers import refuse_schedules
from retention.ingest.validation import Validation

MAX_RECORD_BYTES = 32 * 2**20
"""The largest record that the file store accepts."""


def validate_early(given: pa.Table, config: StreamConfig) -> Validation:
    """Check what the server (2.15) checks first: sealed, sizes, batches, increments, TTLs where none are allowed.

    Args:
        given: messages as published: `subject`, `headers`, `payload`.
        config: the stream's.
    """
    screen = Validation(given.num_rows)
    encoded = given["subject"].combine_chunks().dictionary_encode()
    distinct, of_row = encoded.dictionary, encoded.indices.to_numpy()
    valid, known = (
        _mask(subjects.valid_mask(distinct)),
        _mask(subjects.matching_mask(distinct, config.subjects)),
    )
    screen.refuse(
        ~valid[of_row],
        "the subject is not valid: it needs tokens between dots, without whitespace and wildcards",
        malformed=True,
    )
    screen.refuse(
        ~known[of_row],
        f"the stream takes {', '.join(config.subjects) or 'no subject (a mirror)'} only",
    )
    screen.refuse(np.full(given.num_rows, config.sealed), "the stream is sealed", 10109)
    refuse_sizes(screen, given, config)
    refuse_batch_ids(screen, given["headers"], config)
    refuse_increments(screen, given, config)
    elsewhere = [
        row
        for row, value in _values(given["headers"], EXPECTED_STREAM)
        if value != config.name.encode()
    ]
    screen.refuse(_at(elsewhere, given), f"its {EXPECTED_STREAM} is another stream", 10060)
    if not config.allow_msg_ttl:
        ttls = headers.ttls(given["headers"])
        asking = (ttls != 0) & (ttls != headers.UNREADABLE_TTL)
        screen.refuse(asking, f"it has a {headers.TTL}, and allow_msg_ttl is off", 10166)
    return screen


def validate_features(
    given: pa.Table, subjects: pa.ChunkedArray, config: StreamConfig
) -> Validation:
    """Check what the server checks between expected sequences and duplicates: schedules and origins of messages.

    Args:
        given: messages as published: `headers`.
        subjects: the subjects under which they would be stored.
        config: the stream's.
    """
    screen = Validation(given.num_rows)
    refuse_schedules(screen, given["headers"], subjects, config)
    refuse_sources(screen, given["headers"])
    return screen


def validate_late(given: pa.Table, rows: pa.Table, config: StreamConfig) -> Validation:
    """Check what the server checks last: missing increments, sizes again, unreadable TTLs, its record size.

    Args:
        given: messages as published, with the lines that the server adds before it checks their size again: `headers`,
            `payload`.
        rows: messages as they would be stored: `headers`, `size`.
        config: the stream's.
    """
    screen = Validation(rows.num_rows)
    refuse_uncounted(screen, rows["headers"], config)
    if config.allow_msg_schedules:
        refuse_sizes(screen, given, config)
    unreadable = headers.ttls(rows["headers"]) == headers.UNREADABLE_TTL
    grammar = "whole seconds, a duration of at least 1s, or never"
    screen.refuse(unreadable, f"its {headers.TTL} is not a TTL ({grammar})", 10165)
    refuse_records(screen, rows, config)
    return screen


def refuse_records(screen: Validation, rows: pa.Table, config: StreamConfig) -> None:
    """Refuse records that the storage never accepts; `rows` have their `size`."""
    if config.storage == "file":
        too_long = rows["size"].to_numpy() > MAX_RECORD_BYTES
        screen.refuse(too_long, "a file store takes no record above 32 MiB", 10077)


def refuse_sizes(screen: Validation, given: pa.Table, config: StreamConfig) -> None:
    """Refuse messages with too long `headers`, or too long `headers` and `payload` together."""
    header_bytes = _lengths(given["headers"])
    content = header_bytes + _lengths(given["payload"])
    if config.max_msg_size > 0:
        above = content > config.max_msg_size
        screen.refuse(
            above, f"headers and payload exceed max_msg_size, {config.max_msg_size:,} bytes", 10054
        )
    screen.refuse(
        header_bytes > headers.MAX_BLOCK_BYTES,
        f"the headers exceed {headers.MAX_BLOCK_BYTES:,} bytes",
        10097,
    )


def _values(blocks: pa.ChunkedArray, name: str) -> Iterator[tuple[int, bytes]]:
    """The rows that have a value for a header, and the value."""
    if blocks.null_count == len(blocks):
        return
    holding = np.flatnonzero(_mask(pc.match_substring(blocks, f"\r\n{name}:")))
    texts = blocks.take(pa.array(holding)).to_pylist()
    for row, block in zip(holding.tolist(), texts, strict=True):
        value = headers.lookup(block, name)
        if value:
            yield row, value


def _at(places: list[int], given: pa.Table) -> np.ndarray:
    mask = np.zeros(given.num_rows, dtype=bool)
    mask[places] = True
    return mask


def _mask(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(values, False), dtype=bool)  # noqa: FBT003


def _lengths(values: pa.ChunkedArray) -> np.ndarray:
    return pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
