"""The change data file of a rewrite: the removed rows, for readers of a table's change data feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyroaring import BitMap64

from retention.delta.parquet_rows import ParquetSource, check_rows, write_rows
from retention.delta.rewrite import new_name
from retention.delta.vectors import read_vector
from retention.storage import files
from retention.storage.crash_points import Step, reached

_DIRECTORY = "_change_data"
_CHANGE = pa.field("_change_type", pa.string())
_ENABLED = "delta.enableChangeDataFeed"


def has_change_data(metadata: Mapping[str, Any]) -> bool:
    """Whether a table's rewrites need change data files."""
    return (metadata.get("configuration") or {}).get(_ENABLED, "").lower() == "true"


def write_change_data(
    root: str, metadata: Mapping[str, Any], add: Mapping[str, Any], dead: BitMap64
) -> dict[str, Any] | None:
    """Write the rows of a data file that a rewrite removes as deleted rows; durable and counted on return.

    Args:
        root: the table's location.
        metadata: its `metaData` action.
        add: the `add` action of the file before the rewrite.
        dead: positions of rows, counted from 0; an earlier commit removed those that the file's vector hides.

    Returns:
        The `cdc` action; None without removed rows.

    Raises:
        DamagedError: the file or its vector cannot be read.
        VerificationError: the file has not the expected rows.
    """
    removed = dead - read_vector(root, add.get("deletionVector"))
    if not removed:
        return None
    source = ParquetSource(root, metadata, add)
    directory = add["path"].rpartition("/")[0]
    path = "/".join(
        [_DIRECTORY, *([directory] if directory else []), new_name("cdc", source.codec)]
    )
    location = files.join(root, unquote(path))

    def deleted() -> Iterator[pa.Table]:
        for positions, rows in source.rows_where(lambda these: these & removed):
            change = pa.repeat("delete", len(positions))
            yield rows.append_column(_CHANGE, change)

    written, _ = write_rows(location, source, source.schema.append(_CHANGE), deleted())
    check_rows(location, written, len(removed))
    reached(Step.CHANGES_WRITTEN)
    return {
        "path": path,
        "partitionValues": add.get("partitionValues") or {},
        "size": files.stat(location)[0],
        "dataChange": False,
    }
