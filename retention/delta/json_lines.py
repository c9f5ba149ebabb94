"""JSON texts, one a line, as columns of a given shape."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.json as pj

_SMALL_BYTES = 1 << 20
"""The length up to which handing blocks and columns to threads costs more than parsing."""


def parse_lines(content: pa.Buffer, schema: pa.Schema, block_bytes: int) -> pa.Table:
    """The fields of a schema in each line; null where a line has none, and other fields are ignored.

    Args:
        content: the lines.
        schema: the wanted fields.
        block_bytes: bytes parsed at a time; no line may be longer.

    Raises:
        pyarrow.ArrowException: a line is not an object with such fields.
    """
    return pj.read_json(
        pa.BufferReader(content),
        # A block is allocated at its full size.
        read_options=pj.ReadOptions(
            block_size=min(block_bytes, content.size + 1), use_threads=content.size > _SMALL_BYTES
        ),
        parse_options=pj.ParseOptions(schema, unexpected_field_behavior="ignore"),
    )
