"""The copy of a data file without dead rows, with everything that the table's features ask of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyroaring import BitMap64

from retention.delta.copy_stats import CopyStats
from retention.delta.parquet_rows import ParquetSource, check_rows, write_rows
from retention.delta.row_ids import TrackedRows
from retention.delta.schema import leaves
from retention.delta.vectors import unite
from retention.storage import files
from retention.storage.crash_points import Step, reached

_KEPT = ("tags", "clusteringProvider")
"""Fields of an `add` action that hold for a copy, too."""


def rewrite(
    root: str, metadata: Mapping[str, Any], add: Mapping[str, Any], dead: BitMap64
) -> tuple[dict[str, Any], str]:
    """Copy a data file without its dead rows; the copy is durable and counted on return.

    The memory in use is bounded by a row group, or `parquet_rows.GROUP_BYTES`.

    Args:
        root: the table's location.
        metadata: its `metaData` action.
        add: the file's `add` action.
        dead: positions of rows, counted from 0; rows that its vector hides are dead, too.

    Returns:
        The copy's `add` action, before `row_ids.with_row_ids`, and the SHA-256 of its bytes.

    Raises:
        DamagedError: the file or its vector cannot be read.
        VerificationError: the copy has not the expected rows; a position is beyond the file's end.
    """
    dead = unite(root, add, dead)
    source = ParquetSource(root, metadata, add)
    tracked = TrackedRows.of(metadata, add)
    stats = CopyStats(_stats(add), leaves(metadata), source.columns.names())
    directory = add["path"].rpartition("/")[0]
    path = "/".join([*([directory] if directory else []), new_name("part", source.codec)])
    location = files.join(root, unquote(path))

    def remaining() -> Iterator[pa.Table]:
        for positions, rows in source.rows_where(lambda these: these - dead):
            stats.add(rows)
            yield rows if tracked is None else tracked.materialized(positions, rows)

    schema = source.schema if tracked is None else tracked.schema(source.schema)
    written, sha256 = write_rows(location, source, schema, remaining())
    check_rows(location, written, source.rows - len(dead))
    reached(Step.COPY_WRITTEN)
    size, modified_ms = files.stat(location)
    copy = {
        "path": path,
        "partitionValues": add.get("partitionValues") or {},
        "size": size,
        "modificationTime": modified_ms,
        "dataChange": True,
        "stats": stats.text(),
        **{name: add[name] for name in _KEPT if add.get(name) is not None},
    }
    return copy, sha256


def new_name(kind: str, codec: str) -> str:
    """An unused name of a data file, as Spark's."""
    suffix = "" if codec == "NONE" else f".{codec.lower()}"
    return f"{kind}-00000-{uuid.uuid4()}.c000{suffix}.parquet"


def _stats(add: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(add.get("stats") or "{}")
