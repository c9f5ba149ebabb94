"""Rows as compressed bytes without a schema, because a shuffle moves very many short tables."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def packed(table: pa.Table) -> bytes:
    """A table as one compressed batch without its schema; empty for no rows."""
    if not table.num_rows:
        return b""
    [batch] = table.combine_chunks().to_batches()
    content = batch.serialize()
    return len(content).to_bytes(8, "little") + pa.compress(content, "lz4", asbytes=True)


def unpacked(contents: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """The rows in the contents of parts, in order."""
    return pa.Table.from_batches(
        [
            pa.ipc.read_record_batch(_decompressed(content), schema)
            for content in contents
            if content
        ],
        schema,
    )


def _decompressed(content: bytes) -> pa.Buffer:
    length = int.from_bytes(content[:8], "little")
    return pa.decompress(memoryview(content)[8:], length, "lz4")
