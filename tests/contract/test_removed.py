"""The highest removed sequence of a partition: in the commit, in every log, and it never falls."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from retention.core.table_updates import (
    SetEpoch,
    SetNextSeq,
    SetOpenBase,
    SetRemoved,
    TableUpdate,
    set_removed,
)
from retention.errors import DamagedError
from retention.ports import Store
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.stores.parquet.log import LIST_EVERY, ParquetLog
from tests.contract.conftest import FORMATS, Stage
from tests.contract.streams import append, latest, removing
from tests.contract.test_swap_terms import EMPTY

pytestmark = pytest.mark.parametrize("stage", FORMATS, indirect=True)


def remove_segment(store: Store, seqs: dict[int, int]) -> None:
    snapshot, files = latest(store)
    swap = replace(removing(files.slice(0, 1)), updates=set_removed(seqs))
    store.commit(swap, snapshot)


def read_by_others(stage: Stage, partition: int = 0, epoch: str = "") -> int | None:
    """The value, read without this program."""
    if stage.format == "delta":
        return DeltaTable(stage.table).transaction_version(f"{epoch}removed/{partition}")
    newest = max((stage.root / "_retention" / "log").glob("*.json"))
    removed = json.loads(newest.read_text())["metadata"].get("removed", {})
    return removed.get(str(partition))


def test_a_table_that_lost_nothing_has_none(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    assert store.snapshot().counters.removed == {}
    assert read_by_others(stage) is None


def test_a_commit_that_removes_says_up_to_where(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    append(store, range(11, 21), segment=11)
    remove_segment(store, {0: 10, 3: 7})
    assert stage.open().snapshot().counters.removed == {0: 10, 3: 7}
    assert read_by_others(stage) == 10
    append(store, range(21, 31), segment=11)
    assert stage.open().snapshot().counters.removed == {0: 10, 3: 7}
    assert read_by_others(stage) == 10
    snapshot = store.snapshot()
    assert store.inventory(snapshot).counters.removed == {0: 10, 3: 7}


def test_it_never_falls_also_behind_a_rival(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    snapshot = store.snapshot()
    remove_segment(store, {0: 10})
    store.commit(replace(EMPTY, updates=[SetRemoved(0, 4)]), snapshot)
    assert read_by_others(stage) == 10
    store.commit(replace(EMPTY, updates=[SetRemoved(0, 12)]), store.snapshot())
    assert read_by_others(stage) == 12


def test_each_epoch_has_its_own(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    remove_segment(store, {0: 10})
    begins: list[TableUpdate] = [SetEpoch(9), SetNextSeq(0, 0), SetOpenBase(0, 0)]
    store.commit(replace(EMPTY, updates=begins), store.snapshot())
    assert store.snapshot().counters.removed == {}
    store.commit(replace(EMPTY, updates=[SetRemoved(0, 3)]), store.snapshot())
    assert store.snapshot().counters.removed == {0: 3}
    assert read_by_others(stage, epoch="epoch/9/") == 3
    store.commit(replace(EMPTY, updates=[SetEpoch(0)]), store.snapshot())
    assert stage.open().snapshot().counters.removed == {0: 10}


def test_it_outlives_checkpoints_and_lists(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    remove_segment(store, {0: 10})
    if stage.format == "delta":
        DeltaTable(stage.table).create_checkpoint()
        log = Path(stage.table, "_delta_log")
        for entry in sorted(log.glob("*.json"))[:-1]:
            entry.unlink()
    else:
        parquet_log = ParquetLog(store._layout)  # type: ignore[attr-defined]
        parquet_log.write_list(parquet_log.read())
        assert store.snapshot().version < LIST_EVERY
    assert stage.open().snapshot().counters.removed == {0: 10}
    assert read_by_others(stage) == 10


def test_a_table_that_is_restored_keeps_it(stage: Stage, store: Store) -> None:
    if stage.format != "delta":
        pytest.skip("only Delta tables are restored to a version")
    append(store, range(1, 11))
    remove_segment(store, {0: 10})
    DeltaTable(stage.table).restore(1)
    assert DeltaTable(stage.table).get_add_actions().num_rows == 1
    assert read_by_others(stage) == 10


def test_a_list_of_an_earlier_version_does_not_count(stage: Stage, store: Store) -> None:
    """It lacks the values of earlier entries, so the value would fall."""
    if stage.format == "delta":
        pytest.skip("only plain Parquet keeps lists")
    append(store, range(1, 11))
    remove_segment(store, {0: 10})
    log = ParquetLog(store._layout)  # type: ignore[attr-defined]
    log.write_list(log.read())
    [place] = (stage.root / "_retention" / "log").glob("*.parquet")
    table = pq.read_table(place)
    fields = verified(parse_json(table.schema.metadata[b"retention.state"]))
    del fields["removed"]
    forged = {b"retention.state": json.dumps(with_checksum(fields)).encode()}
    pq.write_table(table.replace_schema_metadata(forged), place)
    assert stage.open().snapshot().counters.removed == {0: 10}


@pytest.mark.parametrize("hostile", [{"0": -1}, {"x": 1}, {"0": "7"}, 7, {"0": 2**63}])
def test_a_hostile_value_is_refused_by_name(stage: Stage, store: Store, hostile: object) -> None:
    if stage.format == "delta":
        pytest.skip("Delta's transactions are typed by the protocol")
    append(store, range(1, 11))
    remove_segment(store, {0: 10})
    newest = max((stage.root / "_retention" / "log").glob("*.json"))
    fields = verified(json.loads(newest.read_text()))
    fields["metadata"]["removed"] = hostile
    newest.write_text(json.dumps(with_checksum(fields)))
    with pytest.raises(DamagedError, match="removed"):
        stage.open().snapshot()
