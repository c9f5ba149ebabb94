"""Appends on the head of a table, which look at no file of it, are refused where a file might matter."""

from __future__ import annotations

import pytest

from retention.errors import ConflictError, VerificationError
from retention.ports import TableHead, TableStore
from tests.contract.conftest import Stage
from tests.contract.streams import append, appending, latest, removing, rows, sequences, staged

pytestmark = pytest.mark.parametrize("stage", ["delta", "delta-s3"], indirect=True)


@pytest.fixture
def head(store: TableStore) -> TableHead:
    """The head after messages 1 to 3, which a commit of its own made."""
    found = store.head(store.snapshot())
    assert found is not None
    append(store, [1, 2, 3])
    after = found.after("append")
    assert after is not None
    return after


def test_appends_follow_each_other_without_the_table(
    stage: Stage, store: TableStore, head: TableHead
) -> None:
    for seq in (4, 6):
        version = head.append(appending(staged(store, rows([seq])), seq + 1))
        following = head.after("append")
        assert following is not None
        head = following
        assert head.version == version
    assert sequences(stage.open()) == [1, 2, 3, 4, 6]
    snapshot = stage.open().snapshot()
    assert (head.version, dict(head.counters.next_seq)) == (snapshot.version, {0: 7})


def test_only_the_newest_version_of_the_named_run_follows(
    stage: Stage, store: TableStore, head: TableHead
) -> None:
    assert head.after("append") is None
    append(stage.open(), [4])
    assert head.after("another") is None
    assert head.after("append") is not None
    append(stage.open(), [5])
    assert head.after("append") is None
    with pytest.raises(ConflictError, match="another commit came first"):
        head.append(appending(staged(store, rows([4])), 5))


def test_messages_below_the_end_and_removals_are_refused(
    stage: Stage, store: TableStore, head: TableHead
) -> None:
    with pytest.raises(ConflictError, match="begins with sequence 3, and the next is 4"):
        head.append(appending(staged(store, rows([3, 4])), 5))
    with pytest.raises(VerificationError, match="would remove some"):
        head.append(removing(latest(store)[1]))
    assert sequences(stage.open()) == [1, 2, 3]
