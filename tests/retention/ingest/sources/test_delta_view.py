from __future__ import annotations

import json
from typing import Any

import pytest

from retention.ingest.sources.delta_view import view_entry

METADATA = {
    "id": "x",
    "schemaString": "{}",
    "configuration": {"delta.columnMapping.mode": "name", "delta.appendOnly": "true"},
}


def shown(
    protocol: dict[str, Any], *adds: dict[str, Any], table: str = "/a b/t"
) -> list[dict[str, Any]]:
    return [json.loads(line) for line in view_entry(table, protocol, METADATA, adds).splitlines()]


@pytest.mark.parametrize(
    ("protocol", "reading"),
    [
        (
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]},
            (1, 2, None),
        ),
        (
            {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": ["columnMapping"]},
            (2, 5, None),
        ),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors", "v2Checkpoint"],
            },
            (3, 7, ["deletionVectors"]),
        ),
    ],
)
def test_a_view_asks_of_a_reader_what_its_table_asks(
    protocol: dict[str, Any], reading: tuple[int, int, list[str] | None]
) -> None:
    entry = shown(protocol)
    now = entry[0]["protocol"]
    assert (now["minReaderVersion"], now["minWriterVersion"], now.get("readerFeatures")) == reading
    assert entry[1]["metaData"]["configuration"] == {"delta.columnMapping.mode": "name"}


def test_files_and_vectors_are_named_by_their_whole_place() -> None:
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 9,
        "cardinality": 2,
    }
    adds: list[dict[str, Any]] = [
        {"path": "d=a%2520b/x.parquet", "deletionVector": vector, "baseRowId": 0},
        {"path": "s3a://other/y.parquet", "deletionVector": {**vector, "storageType": "i"}},
    ]
    first, second = [action["add"] for action in shown({"minReaderVersion": 1}, *adds)[2:]]
    assert first["path"] == "file:///a%20b/t/d=a%2520b/x.parquet"
    assert first["deletionVector"]["storageType"] == "p"
    assert (
        first["deletionVector"]["pathOrInlineDv"]
        == "file:///a%20b/t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    assert "baseRowId" not in first
    assert second["path"] == "s3a://other/y.parquet"
    assert second["deletionVector"]["storageType"] == "i"
    [on_s3] = [
        action["add"]
        for action in shown({"minReaderVersion": 1}, {"path": "z"}, table="s3a://b/t t")[2:]
    ]
    assert on_s3["path"] == "s3a://b/t%20t/z"
