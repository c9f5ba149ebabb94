"""Behaviour of deltalake 1.6.6 beyond its documentation on which documents of consumers, checkpoints and others rest.

Where a test fails under a new deltalake, change its sentence and the code that rests on it, then the version here.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError

from retention.delta import snapshot
from retention.stores.delta import internals

SHAPE = pa.schema([("part", pa.int64()), ("n", pa.int64())])
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A table with one file of ten rows in a partition, after a logged run."""
    table = tmp_path / "table"
    DeltaTable.create(str(table), SHAPE, partition_by=["part"])
    write_deltalake(str(table), pa.table({"part": [1] * 10, "n": range(10)}, SHAPE), mode="append")
    return str(table)


def commit(table: DeltaTable, actions: list[Any], **properties: Any) -> None:
    """Commit actions like the engine: once, without post-commit hooks."""
    table.create_write_transaction(
        actions,
        "append",
        SHAPE,
        partition_by=["part"],
        commit_properties=CommitProperties(max_commit_retries=0, **properties),
        post_commithook_properties=NO_HOOKS,
    )


def lines(place: str, number: int) -> list[dict[str, Any]]:
    entry = internals.read_entry(place, number)
    assert entry is not None
    return [json.loads(line) for line in entry.splitlines()]


def test_it_is_the_version_that_was_looked_at() -> None:
    assert version("deltalake") == "1.6.6"


def test_an_entry_is_a_file_named_by_its_version_with_an_action_a_line(place: str) -> None:
    assert internals.log_files(place) == ([0, 1], {})
    assert Path(place, "_delta_log", f"{1:020d}.json").read_bytes() == internals.read_entry(
        place, 1
    )
    assert internals.read_entry(place, 2) is None
    assert all(len(line) == 1 for number in (0, 1) for line in lines(place, number))
    assert {kind for kind, _ in internals.actions(internals.read_entry(place, 0) or b"")} == {
        "commitInfo",
        "protocol",
        "metaData",
    }


def test_a_commit_says_its_program_and_carries_metadata_and_transactions(place: str) -> None:
    transactions = [Transaction("next_seq/0", 7, 1_000), Transaction("batch/a/b c", 2**62, 1_000)]
    said = {"userMetadata": '{"run": "r"}', "retentionCommit": "0a1b"}
    commit(DeltaTable(place), [], custom_metadata=said, app_transactions=transactions)
    entry = internals.read_entry(place, 2) or b""
    info = internals.commit_info(entry)
    assert info["engineInfo"].startswith("delta-rs")
    assert said.items() <= info.items()
    assert internals.transactions(entry) == {"next_seq/0": 7, "batch/a/b c": 2**62}
    assert DeltaTable(place).transaction_version("next_seq/0") == 7
    [txn] = [one["txn"] for one in lines(place, 2) if one.get("txn", {}).get("version") == 7]
    assert txn == {"appId": "next_seq/0", "version": 7, "lastUpdated": 1_000}


def test_without_retries_a_rival_is_never_committed_behind(place: str) -> None:
    ours, rival = DeltaTable(place), DeltaTable(place)
    commit(rival, [])
    with pytest.raises(CommitFailedError):
        commit(ours, [])
    assert DeltaTable(place).version() == 2


def test_without_hooks_nothing_is_done_behind_a_commit(place: str) -> None:
    for _ in range(12):
        commit(DeltaTable(place), [])
    entries, checkpoints = internals.log_files(place)
    assert (entries, checkpoints) == (list(range(14)), {})


def test_a_checkpoint_is_beside_the_entry_and_has_all_transactions(place: str) -> None:
    for number in (7, 8):
        commit(DeltaTable(place), [], app_transactions=[Transaction("next_seq/0", number, 1)])
    commit(DeltaTable(place), [], app_transactions=[Transaction("batch/app", 3, 1)])
    DeltaTable(place).create_checkpoint()
    [(number, places)] = internals.whole_checkpoints(place, 9)
    assert (number, list(internals.log_files(place)[1])) == (4, [4])
    assert places == [f"{place}/_delta_log/{4:020d}.checkpoint.parquet"]
    assert all(internals.is_checkpoint(place, one) for one in places)
    assert snapshot.read(place).transactions == {"next_seq/0": 8, "batch/app": 3}
    assert list(internals.whole_checkpoints(place, 3)) == []


def test_a_directory_is_a_table_if_it_has_a_log(place: str) -> None:
    assert internals.is_table(place)
    assert not internals.is_table(f"{place}/part=1")
    assert not internals.is_checkpoint(place, f"{place}/part=1/a.checkpoint.parquet")
    assert internals.log_names(f"{place}/part=1") == []


def test_of_rivals_that_create_a_table_without_another_attempt_one_does(tmp_path: Path) -> None:
    """With deltalake's own retries, half of such logs had a second entry, with the metadata of another table."""
    once = CommitProperties(max_commit_retries=0)

    def create(table: Path, at_once: Barrier) -> None:
        at_once.wait()
        with suppress(CommitFailedError):
            DeltaTable.create(str(table), SHAPE, mode="ignore", commit_properties=once)

    for number in range(8):
        table, at_once = tmp_path / str(number), Barrier(8)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(create, [table] * 8, [at_once] * 8))
        assert len(list((table / "_delta_log").iterdir())) == 1
