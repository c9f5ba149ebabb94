"""Shapes of tables made from a Delta log."""

from __future__ import annotations

import pyarrow as pa

VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
"""A deletion vector's descriptor, with the log's own names."""
TEXTS = pa.map_(pa.string(), pa.string())

STATS_PARSED = "stats_parsed"
"""The column of typed statistics, beside `LIVE_FILES` only if a checkpoint has them for files without JSON."""

LIVE_FILES = pa.schema(
    {
        "path": pa.string(),
        "partition_values": TEXTS,
        "size": pa.int64(),
        "modification_time": pa.int64(),
        "stats": pa.string(),
        "vector": VECTOR,
        "tags": TEXTS,
        "base_row_id": pa.int64(),
        "default_row_commit_version": pa.int64(),
        "clustering_provider": pa.string(),
    }
)
"""One row for each live file: `path` as in the log (URI-escaped), times in milliseconds, `stats` as JSON."""

OF_ADD = {
    "path": "path",
    "partition_values": "partitionValues",
    "size": "size",
    "modification_time": "modificationTime",
    "stats": "stats",
    "vector": "deletionVector",
    "tags": "tags",
    "base_row_id": "baseRowId",
    "default_row_commit_version": "defaultRowCommitVersion",
    "clustering_provider": "clusteringProvider",
}
"""Column of `LIVE_FILES` → field of an `add` action."""
