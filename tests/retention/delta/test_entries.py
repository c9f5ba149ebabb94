from __future__ import annotations

import json

import pytest

from retention.delta import entries
from retention.errors import DamagedError

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab",
    "offset": 1,
    "sizeInBytes": 3,
    "cardinality": 2,
}
ADD = {
    "path": "a%20b",
    "partitionValues": {"p": None},
    "size": 7,
    "modificationTime": 1,
    "dataChange": True,
    "stats": '{"numRecords":5,"tightBounds":true}',
    "tags": {"x": "y"},
    "deletionVector": VECTOR,
    "baseRowId": 0,
    "defaultRowCommitVersion": 0,
    "clusteringProvider": "liquid",
    "later": 1,
}


def test_a_removal_carries_the_vector_and_the_row_ids() -> None:
    remove = entries.remove_of(ADD, 9)["remove"]
    assert remove["deletionVector"] == VECTOR
    assert (remove["baseRowId"], remove["defaultRowCommitVersion"]) == (0, 0)
    assert remove["extendedFileMetadata"] is True
    assert remove["deletionTimestamp"] == 9
    assert "modificationTime" not in remove


def test_a_new_vector_keeps_the_rest_and_widens_the_statistics() -> None:
    changed = entries.with_vector(ADD, VECTOR | {"offset": 2}, 9)["add"]
    assert json.loads(changed.pop("stats")) == {"numRecords": 5, "tightBounds": False}
    assert changed.pop("deletionVector")["offset"] == 2
    assert changed.pop("modificationTime") == 9
    assert changed.items() <= ADD.items()


def test_bounds_keep_every_digit_and_character_beside_a_vector() -> None:
    text = '{"numRecords":5,"maxValues":{"c":12345678901234567890.25,"k":"\U00020000","f":1e-7}}'
    changed = entries.with_vector(ADD | {"stats": text}, VECTOR, 9)["add"]["stats"]
    assert changed == text.replace("1e-7", "0.0000001")[:-1] + ',"tightBounds":false}'


def test_unknown_fields_and_actions_survive() -> None:
    content = b'{"add":{"path":"a","later":[1]}}\n\n{"laterKind":{"x":null}}\n'
    assert entries.encode(entries.parse(content, "x")) == content.replace(b"\n\n", b"\n")


def test_actions_other_than_of_files_are_parsed() -> None:
    lines = [
        b'{"add":{}}',
        b'{"cdc":',
        b' { "add":{"path":"a"},"txn":{"appId":"a"},"remove":null}',
        b"",
        b'{"txn":{}}',
    ]
    split = entries.split(b"\n".join(lines), "x")
    assert (split.lines, split.longest, len(split.others)) == (4, len(lines[2]), 2)


@pytest.mark.parametrize("content", [b'{"txn":', b"[]", b'"add"', b"\xff", b"3", b'{"txn":{}} x'])
def test_a_line_without_an_action_is_refused_by_its_place(content: bytes) -> None:
    with pytest.raises(DamagedError, match=r"^log/1\.json: this entry"):
        entries.split(b'{"add":{}}\n' + content, "log/1.json")


def test_partition_columns_have_physical_names() -> None:
    fields = [
        {"name": "a", "metadata": {"delta.columnMapping.physicalName": "col-1"}},
        {"name": "b", "metadata": {}},
        {"name": "c"},
    ]
    metadata = {"partitionColumns": ["a", "b"], "schemaString": json.dumps({"fields": fields})}
    assert entries.partition_names([{"metaData": metadata}, {"metaData": None}]) == {"col-1", "b"}
