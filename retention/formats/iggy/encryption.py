"""Refusal of encrypted messages; no log marks them, but their user headers reveal them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.errors import RefusedError
from retention.formats.iggy import user_headers

_LEAST_MESSAGES = 8
"""The minimum number of messages with user headers for a decision."""
_MOST_MESSAGES = 64
_ADDED_BYTES = 12 + 16
"""The bytes that AES-256-GCM adds: a nonce before the content and a tag after it."""
_LEAST_HEADERS_BYTES = _ADDED_BYTES + 12
"""The minimum bytes of one encrypted pair: one byte each of key and value, and five before each."""


def refuse_encrypted(rows: pa.RecordBatch, place: str) -> None:
    """Refuse messages (shape `ROWS`) encrypted by the server.

    Raises:
        RefusedError: the messages are encrypted; the message names the place.
    """
    if _is_encrypted(rows):
        raise RefusedError(
            f"{place}: its messages are encrypted, so that neither payloads nor user headers can be read; nothing was"
            " imported; poll them from the server, which decrypts them"
        )


def _is_encrypted(rows: pa.RecordBatch) -> bool:
    """Whether the messages of a log (shape `ROWS`) are encrypted, judged by their user headers.

    A server encrypts payloads and user headers and then computes the checksums, so all checksums are correct. User
    headers have a structure, random bytes have none. Messages count as encrypted if at least 8 have user headers, none
    of these can be parsed, everything is long enough for a nonce and a tag, and half of all bits are set.
    """
    sample = rows.take(pc.indices_nonzero(pc.is_valid(rows["headers"]))[:_MOST_MESSAGES])
    blocks = sample["headers"].to_pylist()
    if len(blocks) < _LEAST_MESSAGES or any(len(block) < _LEAST_HEADERS_BYTES for block in blocks):
        return False
    if pc.min(pc.binary_length(sample["payload"])).as_py() < _ADDED_BYTES:
        return False
    return not any(map(user_headers.is_valid, blocks)) and _is_noise(b"".join(blocks))


def _is_noise(content: bytes) -> bool:
    """Whether each of the eight bits is set in half of the bytes, within five standard deviations."""
    bits = np.unpackbits(np.frombuffer(content, np.uint8)).reshape(-1, 8)
    return bool((np.abs(bits.mean(axis=0) - 0.5) < 2.5 / np.sqrt(len(bits))).all())
