"""File actions of few lines are read as those of many: both parsers give the same rows, or the same error."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from retention.delta import entries, file_actions
from retention.delta.shapes import LIVE_FILES
from retention.errors import DamagedError
from retention.schemas.empty import empty_table

PLAIN = {
    "path": "p=1/a%20b",
    "partitionValues": {"p": "1"},
    "size": 3,
    "modificationTime": 5,
    "dataChange": True,
    "stats": '{"numRecords":1.5}',
}
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab",
    "offset": 1,
    "sizeInBytes": 2,
    "cardinality": 3,
}


def added(**fields: Any) -> dict[str, Any]:
    return {"add": PLAIN | fields}


def removed(**fields: Any) -> dict[str, Any]:
    return {"remove": {"path": "a", "deletionTimestamp": 1} | fields}


ENTRIES: dict[str, list[dict[str, Any]]] = {
    "plain": [added(), removed(), removed(deletionVector=None)],
    "with all fields": [
        added(
            deletionVector=VECTOR,
            tags={"k": "v", "n": None},
            baseRowId=7,
            defaultRowCommitVersion=8,
            clusteringProvider="liquid",
        ),
        removed(deletionVector=VECTOR),
    ],
    "with few fields": [{"add": {"path": "a"}}, added(tags={}, stats=None, modificationTime=None)],
    "with a part of a vector": [added(deletionVector={"storageType": "u"})],
    "without partition values": [added(partitionValues=None), added(partitionValues={"q": "1"})],
    "with a null partition": [added(partitionValues={"p": None})],
    "with other actions": [{"commitInfo": {"n": 1.5}}, {"cdc": {"path": "c"}}, added()],
    "with both": [added() | removed()],
    "without any": [{"commitInfo": {}}, {"add": None, "remove": None}],
    "path missing": [{"add": {}}],
    "path null": [added(path=None)],
    "path missing in a removal": [{"remove": {}}],
    "path a number": [removed(path=5)],
    "no object": [{"add": 5}],
    "size with a fraction": [added(size=1.0)],
    "size true": [added(size=True)],
    "size a text": [added(size="1")],
    "size too large": [added(size=1 << 63)],
    "statistics a number": [added(stats=5)],
    "partition a number": [added(partitionValues={"p": 5})],
    "offset with a fraction": [added(deletionVector=VECTOR | {"offset": 1.0})],
    "offset too large": [added(deletionVector=VECTOR | {"offset": 1 << 31})],
}
LINES = {
    "a space first": b' {"add":{"path":"a"}}\n\n{"remove":{"path":"a"}}\r\n',
    "two actions": b'{"add":{"path":"a"}}{"add":{"path":"b"}}',
    "a name twice": b'{"add":{"path":"a","path":"b"}}',
    "half a character": rb'{"add":{"path":"\ud800"}}',
    "a zero": rb'{"add":{"path":"a\u0000b"}}',
    "NaN": b'{"add":{"path":"a","size":NaN}}',
    "an exponent": b'{"add":{"path":"a","size":1e2}}',
    "cut off": b'{"add":{"path":"a"',
}
CASES = LINES | {name: entries.encode(actions) for name, actions in ENTRIES.items()}


def parsed(content: bytes) -> list[dict[str, Any]] | str:
    try:
        rows = file_actions.parse_entries([entries.split(content, "place")], ["p"], "place")
    except DamagedError as error:
        return str(error)
    live = file_actions.live_of(rows).to_pylist()
    return [*live, *rows.select(["path", "vector", file_actions.IS_ADD]).to_pylist()]


@pytest.mark.parametrize("name", CASES)
def test_few_lines_are_read_as_many(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = parsed(CASES[name])
    monkeypatch.setattr(file_actions, "_FEW_LINES", 0)
    assert few == parsed(CASES[name])


def test_usual_entries_are_read_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_actions, "parse_lines", None)
    content = json.dumps(added(), separators=(",", ":")).encode()
    assert len(parsed(content)) == 1 + 1


def test_a_file_under_a_vector_and_the_same_path_without_one_are_two_files() -> None:
    plain, under = added(path="a"), added(path="a", deletionVector=VECTOR)
    live = reconciled([plain, under])
    assert vectors_of(reconciled([removed(path="a")], live)) == [VECTOR]
    assert vectors_of(reconciled([removed(path="a", deletionVector=VECTOR)], live)) == [None]
    # Entries without vectors name files as those with some do.
    assert vectors_of(reconciled([removed(path="a")], reconciled([plain, added(path="b")]))) == [
        None
    ]


def reconciled(actions: list[dict[str, Any]], live: pa.Table | None = None) -> pa.Table:
    before = empty_table(LIVE_FILES) if live is None else live
    entry = entries.split(entries.encode(actions), "entry")
    return file_actions.reconcile(before, file_actions.parse_entries([entry], {"p"}, "entry"))


def vectors_of(live: pa.Table) -> list[Any]:
    return list(live["vector"].to_pylist())
