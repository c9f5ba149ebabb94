"""Positions in sources: the values that a record keeps, and their bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from retention.ingest.sources.delta_follow import DeltaFiles
from retention.ingest.sources.directory import TakenFile
from retention.storage.checksum import parse_json, stripped, with_hash
from retention.storage.tables import decode_stream, encode_stream

FORMAT_VERSION = 1
_LABEL = b"retention.ingest"
_DIRECTORY = pa.schema(
    [
        ("path", pa.string()),
        ("length", pa.int64()),
        ("modified_ns", pa.int64()),
        ("content", pa.string()),
        ("inode", pa.int64()),
    ]
)
_DELTA = pa.schema([("path", pa.string()), ("untaken", pa.int64()), ("add", pa.string())])


@dataclass(frozen=True)
class DirectoryPosition:
    """The position in a directory: its taken files."""

    format: str
    columns: Mapping[str, object] | None
    """The columns of its files, as JSON of a Spark schema; None: not read yet."""
    partitions: Mapping[str, str]
    """Name → type of each column from directories `name=value`."""
    files: Mapping[str, TakenFile] = field(default_factory=dict)


@dataclass(frozen=True)
class DeltaPosition:
    """The position in a Delta table: a version of its log, and the taken files."""

    version: int
    """The newest version that was read; `files.pending` has its files that were not taken yet."""
    seal: str
    """Digest of that version's entry."""
    protocol: Mapping[str, object]
    metadata: Mapping[str, Any]
    """The table's actions `protocol` and `metaData` at that version."""
    files: DeltaFiles = field(default_factory=DeltaFiles)

    @property
    def table_id(self) -> str:
        """The id that the table got when it was created."""
        return str(self.metadata["id"])

    @property
    def columns(self) -> dict[str, Any]:
        """The table's columns, as JSON of a Spark schema."""
        parsed: dict[str, object] = parse_json(self.metadata["schemaString"])
        return parsed


Position = DirectoryPosition | DeltaPosition


def packed(position: Position) -> bytes:
    """Encode a position as bytes, with a checksum."""
    if isinstance(position, DirectoryPosition):
        label: dict[str, object] = {
            "kind": "directory",
            "format": position.format,
            "columns": position.columns,
            "partitions": dict(position.partitions),
        }
        table = _directory_table(position.files)
    else:
        label = {
            "kind": "delta",
            "version": position.version,
            "seal": position.seal,
            "protocol": position.protocol,
            "metadata": position.metadata,
        }
        table = _delta_table(position.files)
    label["format_version"] = FORMAT_VERSION
    table = table.replace_schema_metadata({_LABEL: json.dumps(label)})
    return with_hash(encode_stream(table, compression="zstd"))


def unpacked(content: bytes) -> Position:
    """Decode the position from bytes written by `packed`.

    Raises:
        ValueError, KeyError, TypeError, pyarrow.ArrowException: the bytes are not from `packed`, or from a later
            release.
    """
    body, _ = stripped(content)
    table = decode_stream(body)
    label = parse_json((table.schema.metadata or {})[_LABEL])
    if label["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"format version {label['format_version']}; this release knows {FORMAT_VERSION}"
        )
    if label["kind"] == "directory":
        files = {row["path"]: TakenFile(**row) for row in table.to_pylist()}
        return DirectoryPosition(label["format"], label["columns"], label["partitions"], files)
    return DeltaPosition(
        label["version"], label["seal"], label["protocol"], label["metadata"], _delta_files(table)
    )


def _directory_table(files: Mapping[str, TakenFile]) -> pa.Table:
    rows = [
        (file.path, file.length, file.modified_ns, file.content, file.inode)
        for file in files.values()
    ]
    return _table(rows, _DIRECTORY)


def _delta_table(files: DeltaFiles) -> pa.Table:
    taken = [(path, untaken, None) for path, untaken in files.taken.items()]
    pending = [(path, None, json.dumps(add)) for path, add in files.pending.items()]
    return _table([*taken, *pending], _DELTA)


def _delta_files(table: pa.Table) -> DeltaFiles:
    columns = (table[name].to_pylist() for name in _DELTA.names)
    files = DeltaFiles()
    for path, untaken, add in zip(*columns, strict=True):
        if add is None:
            files.taken[path] = untaken
        else:
            files.pending[path] = parse_json(add)
    return files


def _table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
