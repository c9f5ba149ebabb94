from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from retention.delta import entries, snapshot
from retention.errors import DamagedError, UsageError
from tests.support.delta_tables import PROTOCOL, add, assert_as_deltalake, metadata, write_entry

ODD = ["a b", "x=1/2", "50%", "é:ü", "", None]
"""Partition values that a path escapes, each writer in its own way."""
BEGIN = [PROTOCOL, metadata(("id", "long"), ("p", "string"), partitions=["p"])]


def vector(name: str) -> dict[str, Any]:
    return {
        "storageType": "u",
        "pathOrInlineDv": name,
        "offset": 1,
        "sizeInBytes": 3,
        "cardinality": 1,
    }


def write_odd(root: str, start: int, mode: str = "append") -> None:
    rows = {
        "id": range(start, start + len(ODD)),
        "p": ODD,
        "at": [datetime(2026, 1, 2, tzinfo=UTC)] * len(ODD),
    }
    table = pa.table({name: pa.array([*values]) for name, values in rows.items()})
    write_deltalake(root, table, mode=mode, partition_by=["p"])  # type: ignore[call-overload]


@pytest.mark.parametrize("checkpoints", [(), (2,), (1, 4)])
def test_every_version_is_as_deltalake_has_it(tmp_path: Path, checkpoints: tuple[int, ...]) -> None:
    root = str(tmp_path)
    for version in range(5):
        if version == 3:
            DeltaTable(root).delete("p = 'a b' or p = '50%'")
        else:
            write_odd(root, version * 10)
        if version in checkpoints:
            DeltaTable(root).create_checkpoint()
    DeltaTable(root).optimize.compact()
    states = [snapshot.read(root, version) for version in range(6)]
    for state in states:
        assert_as_deltalake(state)
        advanced = snapshot.advance(state)
        assert advanced.version == 5
        assert_as_deltalake(advanced)


def test_a_checkpoint_without_its_entries_is_a_table(tmp_path: Path) -> None:
    for start in range(3):
        write_odd(str(tmp_path), start)
    DeltaTable(tmp_path).create_checkpoint()
    write_odd(str(tmp_path), 30)
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert_as_deltalake(snapshot.read(str(tmp_path)))
    with pytest.raises(UsageError, match="it has 2 to 3"):
        snapshot.read(str(tmp_path), 1)


def test_transactions_and_domains_are_the_newest(tmp_path: Path) -> None:
    write_odd(str(tmp_path), 0)
    for version in (3, 7):
        txn = CommitProperties(
            app_transactions=[Transaction("us", version), Transaction(f"{version}", 1)]
        )
        rows = pa.table({"id": [1], "p": ["x"], "at": [datetime(2026, 1, 2, tzinfo=UTC)]})
        write_deltalake(tmp_path, rows, mode="append", commit_properties=txn)
    DeltaTable(tmp_path).create_checkpoint()
    domain = {"domain": "d", "configuration": "{}", "removed": False}
    write_entry(tmp_path, 3, [{"domainMetadata": domain}, {"txn": {"appId": "us", "version": 8}}])
    state = snapshot.read(str(tmp_path))
    assert state.transactions == {"us": 8, "3": 1, "7": 1}
    assert state.domains == {"d": domain}
    write_entry(tmp_path, 4, [{"domainMetadata": domain | {"removed": True}}])
    assert snapshot.advance(state).domains == {}


NAMES = st.sampled_from(["a", "p=x%20y/b", "p=x y/b", "p=%C3%A9/c", "p=é/c", "d%25e"])
VECTORS = st.sampled_from(
    [
        None,
        vector("v"),
        vector("w"),
        {"storageType": "i", "pathOrInlineDv": "v", "sizeInBytes": 1, "cardinality": 1},
    ]
)
ACTIONS = st.lists(
    st.tuples(st.booleans(), NAMES, VECTORS, st.integers(0, 3)), min_size=1, max_size=4
)


@given(history=st.lists(ACTIONS, min_size=1, max_size=5))
@settings(max_examples=60)
def test_the_last_action_on_a_path_and_vector_counts(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any]
) -> None:
    root = tmp_path_factory.mktemp("t")
    live: dict[tuple[str, str], tuple[int, Any]] = {}
    write_entry(root, 0, BEGIN)
    begun = snapshot.read(str(root))
    for version, changes in enumerate(history, 1):
        actions = []
        for is_add, path, dead, size in changes:
            key = entries_path(path), entries.vector_id(dead)
            fields = {"deletionVector": dead} if dead else {}
            tags = {"tags": {"k": "2026-01-01"}} if size == 2 else {}
            if is_add:
                actions.append(add(path, size=size, **fields, **tags))
                live[key] = size, tags.get("tags")
            else:
                actions.append({"remove": {"path": path, "dataChange": True, **fields}})
                live.pop(key, None)
        write_entry(root, version, actions)
        read = snapshot.read(str(root))
        for state in (read, snapshot.advance(begun)):
            adds = [state.add_of(row) for row in range(state.files.num_rows)]
            assert {
                (entries_path(a["path"]), entries.vector_id(a.get("deletionVector"))): (
                    a["size"],
                    a.get("tags"),
                )
                for a in adds
            } == live
            assert len(adds) == len(live)
        begun = read if version == 2 else begun
    shutil.rmtree(root)


def entries_path(path: str) -> str:
    return {"p=x%20y/b": "p=x y/b", "p=%C3%A9/c": "p=é/c", "d%25e": "d%e"}.get(path, path)


def test_an_add_is_written_as_it_was(tmp_path: Path) -> None:
    stats = '{"numRecords":3,"minValues":{"id":1}}'
    given_add = add(
        "p=a/x",
        partitionValues={"p": "a"},
        stats=stats,
        tags={"INSERTION_TIME": "1"},
        deletionVector=vector("v"),
        baseRowId=4,
        defaultRowCommitVersion=2,
        clusteringProvider="liquid",
    )
    write_entry(tmp_path, 0, [*BEGIN, given_add])
    assert snapshot.read(str(tmp_path)).add_of(0) == given_add["add"]


def test_a_place_without_a_log_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no Delta table"):
        snapshot.read(str(tmp_path))


def test_a_missing_entry_is_damage(tmp_path: Path) -> None:
    for version in range(4):
        write_entry(tmp_path, version, BEGIN if not version else [add(str(version))])
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(DamagedError, match=r"0002\.json: this entry of the table's log is missing"):
        snapshot.read(str(tmp_path))
    assert snapshot.read(str(tmp_path), 1).files.num_rows == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"add":{"path":"x","si',
        b'{"add":{"path":"x","size":"many"}}',
        b'{"add":{"path":"x"}}{"add":{"path":"y"}}',
        b'{"add":{"size":1}}',
        b'{"txn":{"version":1}}',
        b'{"metaData":{"partitionColumns":["p"],"schemaString":"{"}}',
        b'{"commitInfo":',
        b"no json",
    ],
)
def test_a_damaged_entry_is_refused_by_its_place(tmp_path: Path, line: bytes) -> None:
    write_entry(tmp_path, 0, BEGIN)
    place = write_entry(tmp_path, 1, [add("a")])
    place.write_bytes(place.read_bytes() + line)
    write_entry(tmp_path, 2, [add("b")])
    with pytest.raises(
        DamagedError, match=r"0001\.json: this entry of the table's log cannot be read"
    ):
        snapshot.read(str(tmp_path))


def test_a_damaged_or_missing_checkpoint_is_refused_by_its_place(tmp_path: Path) -> None:
    write_odd(str(tmp_path), 0)
    DeltaTable(tmp_path).create_checkpoint()
    place = tmp_path / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    place.write_bytes(place.read_bytes()[:-9])
    with pytest.raises(DamagedError, match=r"checkpoint\.parquet: this file of a checkpoint"):
        snapshot.read(str(tmp_path))


def test_a_checkpoint_that_lacks_a_part_is_not_used(tmp_path: Path) -> None:
    write_odd(str(tmp_path), 0)
    (tmp_path / "_delta_log" / f"{0:020d}.checkpoint.{1:010d}.{2:010d}.parquet").write_bytes(
        b"half"
    )
    assert_as_deltalake(snapshot.read(str(tmp_path)))


def test_a_log_without_a_protocol_describes_no_table(tmp_path: Path) -> None:
    write_entry(tmp_path, 0, BEGIN[1:])
    with pytest.raises(DamagedError, match="describes no table"):
        snapshot.read(str(tmp_path))


@pytest.mark.parametrize(
    ("protocol", "features"),
    [
        ({"minWriterVersion": 2}, {"appendOnly", "invariants"}),
        (
            {"minWriterVersion": 7, "writerFeatures": ["appendOnly"], "readerFeatures": ["x"]},
            {"appendOnly", "x"},
        ),
    ],
)
def test_features_are_named_or_implied(tmp_path: Path, protocol: Any, features: set[str]) -> None:
    write_entry(tmp_path, 0, [{"protocol": protocol}, BEGIN[1]])
    state = snapshot.read(str(tmp_path))
    assert state.features == features
    assert [field["name"] for field in state.schema["fields"]] == ["id", "p"]
    assert json.loads(state.metadata["schemaString"]) == state.schema
