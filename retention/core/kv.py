"""Key-value buckets: their names and keys, the stream that keeps one, and what a message does to its key."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core import headers
from retention.errors import UsageError

PUT, DELETE, PURGE = "put", "delete", "purge"

_PREFIX = "KV_"
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")
_FILTER = re.compile(r"[-/_=.a-zA-Z0-9*]*>?")
_OPERATIONS = [PUT, DELETE, PURGE]
_BY_HEADER = {b"DEL": 1, b"PURGE": 2}
_BY_REASON = {b"Remove": 1, b"MaxAge": 2, b"Purge": 2}


def bucket_of(stream: str) -> str | None:
    """The name of the bucket that a stream keeps; None for a stream that is no bucket (ADR-8)."""
    return stream.removeprefix(_PREFIX) if stream.startswith(_PREFIX) else None


def stream_of(bucket: str) -> str:
    """The name of the stream that keeps a bucket (ADR-8).

    Raises:
        UsageError: no bucket can be called so.
    """
    if not is_bucket_name(bucket):
        raise UsageError(
            f"{bucket!r} is no bucket's name: write letters, digits, _ and -, without dots and blanks"
        )
    return f"{_PREFIX}{bucket}"


def is_bucket_name(name: str) -> bool:
    """Whether a bucket can be called so (ADR-8)."""
    return _NAME.fullmatch(name) is not None


def subject_prefix(bucket: str) -> str:
    """The beginning of the subjects of a bucket's keys (ADR-8)."""
    return f"$KV.{bucket}."


def check_key(key: str) -> None:
    """Refuse what is no key (ADR-8).

    Raises:
        UsageError: it is none.
    """
    if not _KEY.fullmatch(key) or _has_empty_token(key):
        raise UsageError(
            f"{key!r} is no key: write letters, digits and any of - / _ = . with a dot neither first, last nor twice "
            "in a row"
        )


def check_key_filter(pattern: str) -> None:
    """Refuse what matches no key: a filter is a key with `*` for one token, or `>` at its end for one or more.

    Raises:
        UsageError: it is none.
    """
    if not pattern or not _FILTER.fullmatch(pattern) or _has_empty_token(pattern):
        raise UsageError(
            f"{pattern!r} matches no key: write a key, * in the place of a token, > at the end for all that follows"
        )


def _has_empty_token(key: str) -> bool:
    return key.startswith(".") or key.endswith(".") or ".." in key


def operations(blocks: headers.Headers) -> pa.Array:
    """The operation of each message on its key: `put`, `delete` or `purge`, as the broker's clients read it.

    `KV-Operation` decides where it has a value, even an unknown one (then `put`); else `Nats-Marker-Reason` (ADR-48).
    """
    codes = np.zeros(len(blocks), dtype=np.int64)
    rows, reasons = headers.first_values(blocks, headers.MARKER_REASON)
    codes[rows] = _codes(reasons, _BY_REASON)
    rows, given = headers.first_values(blocks, headers.KV_OPERATION)
    decides = pc.greater(pc.binary_length(given), 0).to_numpy(zero_copy_only=False)
    codes[rows[decides]] = _codes(given, _BY_HEADER)[decides]
    return pa.array(_OPERATIONS).take(pa.array(codes))


def _codes(values: pa.Array, meanings: dict[bytes, int]) -> np.ndarray:
    """The index of each value's operation in `_OPERATIONS`; that of `put` for an unknown value."""
    known = pa.array(list(meanings), pa.binary())
    at = pc.fill_null(pc.index_in(values, value_set=known), len(meanings))
    codes: np.ndarray = np.array([*meanings.values(), 0])[at.to_numpy()]
    return codes
