"""Counters in a Delta log: equal to deltalake's, for checkpoints at any version."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from hypothesis import given
from hypothesis import strategies as st

from retention.delta.snapshot import read
from retention.schemas.messages import MESSAGES, PARTITION_COLUMNS
from retention.stores.delta.counters import counters
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
            assert read(layout.messages, version).transactions == known


def test_names_of_others_are_no_counters() -> None:
    said = {"next_seq/x": 5, "3c1f": 7, "next_seq/4": 9, "batch/next_seq/1": 2, "consumers": 3}
    found = counters(said)
    assert (found.next_seq, found.open_base) == ({4: 9}, {})
    assert (found.batches, found.consumers, found.released) == ({"next_seq/1": 2}, 3, 0)
