"""The identity of a plan: SHA-256 of its header, as canonical JSON, and of the values of its tables.

Tables are digested column by column, and as values, not as Arrow happens to lay them out: whether a plan was made, or
read from a file, and in how many pieces, does not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def identity(header: Mapping[str, Any], tables: Sequence[pa.Table]) -> str:
    """The identity of a plan, 64 hexadecimal digits.

    Args:
        header: what was decided of the stream as a whole, JSON-able.
        tables: what is done, file by file, each of one shape always; their columns hold numbers or texts.
    """
    canonical = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode())
    for table in tables:
        digest.update(table.num_rows.to_bytes(8, "little"))
        for column in table.columns:
            for content in _contents(column):
                digest.update(content)
    return digest.hexdigest()


def _contents(column: pa.ChunkedArray) -> Iterator[bytes | memoryview]:
    """A column's bytes: how many of its values are null, which if any are, and its values, 0 for those that are null.

    Numbers have 64 bits, lowest byte first; of texts the lengths come first, and then the texts.
    """
    yield column.null_count.to_bytes(8, "little")
    if column.null_count:
        yield from _int64(pc.is_null(column))
    if not (pa.types.is_string(column.type) or pa.types.is_dictionary(column.type)):
        yield from _int64(column)
        return
    texts = column.cast(pa.string())
    yield from _int64(pc.binary_length(texts))
    for chunk in texts.chunks:
        ends = np.frombuffer(chunk.buffers()[1], "<i4", len(chunk) + 1, chunk.offset * 4)
        yield memoryview(chunk.buffers()[2] or b"")[ends[0] : ends[-1]]


def _int64(column: pa.ChunkedArray) -> Iterator[memoryview]:
    for chunk in column.cast(pa.int64()).fill_null(0).chunks:
        yield chunk.to_numpy().astype("<i8", copy=False).data
