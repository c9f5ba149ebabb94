"""Counters read from a Delta log equal deltalake's, for checkpoints at any version and of any kind."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from hypothesis import given
from hypothesis import strategies as st

from retention.errors import BusyError, DamagedError
from retention.schemas.messages import MESSAGES, PARTITION_COLUMNS
from retention.stores.delta.counters import counters, transactions
from retention.stores.layout import Layout
from tests.support.laws import law_on_disk

NAMES = ["next_seq/0", "next_seq/7", "open_base/0", "batch/app", "batch/a/b", "consumers", "other"]
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def made(folder: Path) -> Layout:
    DeltaTable.create(folder / "messages", MESSAGES, partition_by=list(PARTITION_COLUMNS))
    return Layout(str(folder), "ORDERS")


def commit(layout: Layout, said: Sequence[tuple[str, int]]) -> None:
    DeltaTable(layout.messages).create_write_transaction(
        [],
        "append",
        MESSAGES,
        partition_by=list(PARTITION_COLUMNS),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(name, version, 1) for name, version in said]
        ),
        post_commithook_properties=NO_HOOKS,
    )


def log_of(layout: Layout) -> Path:
    return Path(layout.messages) / "_delta_log"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Version 3, with a checkpoint of version 2."""
    found = made(tmp_path)
    commit(found, [("next_seq/0", 1), ("batch/app", 1)])
    commit(found, [("next_seq/0", 2), ("next_seq/1", 20)])
    DeltaTable(found.messages).create_checkpoint()
    commit(found, [("next_seq/0", 3)])
    return found


WANTED = {"next_seq/0": 3, "next_seq/1": 20, "batch/app": 1}


@law_on_disk
@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2**62)), st.booleans()),
        max_size=6,
    )
)
def test_it_says_what_deltalake_says(commits: list[tuple[dict[str, int], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = made(Path(folder))
        for said, checkpointed in commits:
            commit(layout, list(said.items()))
            if checkpointed:
                DeltaTable(layout.messages).create_checkpoint()
        for version in range(len(commits) + 1):
            table = DeltaTable(layout.messages, version=version)
            asked = {name: table.transaction_version(name) for name in NAMES}
            known = {name: number for name, number in asked.items() if number is not None}
            assert transactions(layout, version) == known


def test_entries_before_the_checkpoint_are_not_needed(layout: Layout) -> None:
    for version in range(3):
        (log_of(layout) / f"{version:020}.json").unlink()
    assert transactions(layout, 3) == WANTED


@pytest.mark.parametrize("names", [["{:020}.checkpoint.0000000001.0000000002.parquet"], []])
def test_a_checkpoint_that_lacks_a_part_does_not_count(layout: Layout, names: list[str]) -> None:
    whole = log_of(layout) / f"{2:020}.checkpoint.parquet"
    for name in names:
        (log_of(layout) / name.format(2)).write_bytes(whole.read_bytes())
    whole.unlink()
    assert transactions(layout, 3) == WANTED
    (log_of(layout) / f"{1:020}.json").unlink()
    with pytest.raises(BusyError, match="is gone since the table of stream ORDERS was opened"):
        transactions(layout, 3)


def test_all_parts_of_a_checkpoint_count(layout: Layout) -> None:
    whole = log_of(layout) / f"{2:020}.checkpoint.parquet"
    rows = pq.read_table(whole)
    cut = rows["txn"].is_valid().to_pylist().index(True) + 1
    for number, part in enumerate((rows.slice(0, cut), rows.slice(cut)), 1):
        name = f"{2:020}.checkpoint.{number:010}.{2:010}.parquet"
        pq.write_table(part, log_of(layout) / name)
    whole.unlink()
    (log_of(layout) / f"{1:020}.json").unlink()
    assert transactions(layout, 3) == WANTED


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_checkpoints_of_the_second_kind_count(layout: Layout, kind: str) -> None:
    whole = log_of(layout) / f"{2:020}.checkpoint.parquet"
    named = log_of(layout) / f"{2:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{kind}"
    if kind == "parquet":
        whole.rename(named)
    else:
        rows = pq.read_table(whole)["txn"].drop_null().to_pylist()
        named.write_text("".join(json.dumps({"txn": row}) + "\n" for row in rows))
        whole.unlink()
    (log_of(layout) / f"{1:020}.json").unlink()
    assert transactions(layout, 3) == WANTED


def test_a_checkpoint_that_cannot_be_read_does_not_count(layout: Layout) -> None:
    whole = log_of(layout) / f"{2:020}.checkpoint.parquet"
    whole.write_bytes(whole.read_bytes()[:-20])
    assert transactions(layout, 3) == WANTED


def test_an_entry_that_cannot_be_read_is_named(layout: Layout) -> None:
    (log_of(layout) / f"{3:020}.json").write_text('{"txn": {"appId": "next_seq/0"}}')
    with pytest.raises(DamagedError, match=r"00003\.json: this entry .* cannot be read"):
        transactions(layout, 3)


def test_names_of_others_are_no_counters() -> None:
    said = {"next_seq/x": 5, "3c1f": 7, "next_seq/4": 9, "batch/next_seq/1": 2, "consumers": 3}
    found = counters(said)
    assert (found.next_seq, found.open_base) == ({4: 9}, {})
    assert (found.batches, found.consumers, found.released) == ({"next_seq/1": 2}, 3, 0)
