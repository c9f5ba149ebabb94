"""Many ranges of a legal hold as the bytes of a Parquet file beside its record."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def as_parquet(ranges: np.ndarray) -> bytes:
    """The file of ranges of sequences, both ends inclusive; shape (n, 2)."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"first": ranges[:, 0], "last": ranges[:, 1]}), sink)
    return sink.getvalue()


def from_parquet(content: bytes) -> np.ndarray:
    """The ranges of such a file.

    Raises:
        pyarrow.ArrowException, KeyError: the bytes are not such a file.
    """
    table = pq.read_table(pa.BufferReader(content))
    return np.stack([table["first"].to_numpy(), table["last"].to_numpy()], axis=1)
