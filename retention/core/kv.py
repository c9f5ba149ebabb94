"""Operations of messages on the keys of key-value buckets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core import headers

PUT, DELETE, PURGE = "put", "delete", "purge"

_OPERATIONS = [PUT, DELETE, PURGE]
_BY_HEADER = {b"DEL": 1, b"PURGE": 2}
_BY_REASON = {b"Remove": 1, b"MaxAge": 2, b"Purge": 2}


def operations(blocks: headers.Headers) -> pa.Array:
    """The operation of each message on its key: `put`, `delete` or `purge`, as the broker's clients read it.

    `KV-Operation` decides if it has a value (an unknown value means `put`); otherwise
    `Nats-Marker-Reason` (ADR-48).
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
