"""Tables of any writer in Delta: logs made from actions, and the view of deltalake on a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from retention.delta.rewrite import rewrite
from retention.delta.snapshot import DeltaSnapshot, read


def rewritten(*arguments: Any) -> dict[str, Any]:
    """The `add` action of the copy that `delta.rewrite.rewrite` makes."""
    copy, _ = rewrite(*arguments)
    return copy


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(*columns: tuple[str, str], partitions: Iterable[str] = (), **properties: str) -> Any:
    """The `metaData` action of a table with columns (name, Delta's type)."""
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]
    return {
        "metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [*partitions],
            "configuration": properties,
        }
    }


def add(path: str, **fields: Any) -> Any:
    """The `add` action of a file, without statistics unless given."""
    basics = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1}
    return {"add": {**basics, "dataChange": True, **fields}}


def write_entry(root: Path, version: int, actions: Iterable[Any]) -> Path:
    """Write an entry of a table's log, and return its path."""
    place = root / "_delta_log" / f"{version:020d}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return place


def write_next(root: Path, actions: Iterable[Any]) -> Path:
    """Write the entry after the newest of a table's log, and return its path."""
    return write_entry(root, read(str(root)).version + 1, actions)


def assert_as_deltalake(snapshot: DeltaSnapshot) -> None:
    """Compare a snapshot's files with deltalake's at the same version: sizes, times, partitions, rows, vectors."""
    table = DeltaTable(snapshot.root, version=snapshot.version)
    listed = pa.table(table.get_add_actions()).to_pylist()
    expected = {
        unquote(row["path"]): (
            row["size_bytes"],
            row["modification_time"],
            row["num_records"],
        )
        for row in listed
    }
    adds = [snapshot.add_of(row) for row in range(snapshot.files.num_rows)]
    actual = {
        unquote(each["path"]): (
            each["size"],
            each["modificationTime"],
            json.loads(each["stats"])["numRecords"] if each.get("stats") else None,
        )
        for each in adds
    }
    assert actual == expected
    assert len(adds) == len(listed)
    with_vectors = {unquote(each["path"]) for each in adds if "deletionVector" in each}
    vectors = pa.table(table.deletion_vectors()).to_pylist()
    assert with_vectors == {
        path for row in vectors for path in expected if unquote(row["filepath"]).endswith(path)
    }
    dead = sum(each.get("deletionVector", {}).get("cardinality", 0) for each in adds)
    assert dead == sum(row["selection_vector"].count(False) for row in vectors)
    assert snapshot.metadata["id"] == str(table.metadata().id)
    assert dict(snapshot.properties) == table.metadata().configuration
    assert snapshot.protocol["minWriterVersion"] == table.protocol().min_writer_version
