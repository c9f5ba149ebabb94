"""Delta tables: log content, refused tables, results of commits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from retention.core.table_requirements import AssertEpoch
from retention.core.table_updates import SetEpoch, SetNextSeq
from retention.delta import snapshot as snapshots
from retention.delta.entries import encode
from retention.delta.entry_put import put_if_absent
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ForeignRowsError,
    RefusedError,
    RetentionError,
    StalePlanError,
    StorageError,
    UsageError,
)
from retention.ports import Store, Swap
from retention.schemas.deadlines import NEVER
from retention.schemas.files import LOGGED_FILES
from retention.storage.crash_points import Step, watched_by
from retention.stores.delta import commit
from retention.stores.delta import store as delta
from retention.stores.delta.actions import add_action, remove_action
from retention.stores.delta.forget_log import forget_log
from retention.stores.layout import Layout
from tests.contract.conftest import NOW_NS, Stage
from tests.contract.streams import (
    NOTHING,
    append,
    appending,
    latest,
    removing,
    rows,
    sequences,
    staged,
)

ALLOWED = ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "v2Checkpoint"]


@pytest.fixture
def place(tmp_path: Path) -> Stage:
    return Stage("delta", tmp_path / "streams" / "ORDERS")


@pytest.fixture
def store(place: Stage) -> Store:
    made = place.open()
    made.create()
    return made


def entry(place: Stage, version: int) -> dict[str, list[dict[str, Any]]]:
    """The actions of one version, by kind."""
    text = (place.root / "messages" / "_delta_log" / f"{version:020d}.json").read_text()
    found: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        ((kind, action),) = json.loads(line).items()
        found.setdefault(kind, []).append(action)
    return found


def rewrite_log(place: Stage, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of version 0, like another tool."""
    path = place.root / "messages" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        change(action)
    path.write_text("\n".join(json.dumps(action) for action in actions))


def set_property(place: Stage, name: str, value: str) -> None:
    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"][name] = value

    rewrite_log(place, change)


def set_protocol(place: Stage, **protocol: Any) -> None:
    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = protocol

    rewrite_log(place, change)


def test_a_new_table_keeps_removed_files_for_the_grace_and_its_log_a_week_longer(
    place: Stage,
) -> None:
    place.open(grace_ns=86_400 * 10**9).create()
    configuration = DeltaTable(place.root / "messages").metadata().configuration
    assert configuration == {
        "delta.enableDeletionVectors": "false",
        "delta.deletedFileRetentionDuration": "interval 86400 seconds",
        "delta.logRetentionDuration": "interval 691200 seconds",
        "delta.dataSkippingStatsColumns": "seq,ts_ns,size,deadline_ns,time",
    }


def test_statistics_in_the_log_are_exact(place: Stage, store: Store) -> None:
    snapshot = store.snapshot()
    odd = 1_700_000_000_049_777_123
    table = rows(range(1, 5), ts_ns=[odd, odd + 1, 5, 7], deadline_ns=[None, 9, NEVER, 12])
    store.commit(appending(staged(store, table), 5), snapshot)
    (added,) = entry(place, 1)["add"]
    assert json.loads(added["stats"]) == {
        "numRecords": 4,
        "minValues": {
            "seq": 1,
            "ts_ns": 5,
            "deadline_ns": 9,
            "time": "1970-01-01T00:00:00.000000Z",
        },
        "maxValues": {
            "seq": 4,
            "ts_ns": odd + 1,
            "deadline_ns": NEVER,
            "time": "2023-11-14T22:13:20.049777Z",
        },
        "nullCount": {"seq": 0, "ts_ns": 0, "size": 0, "deadline_ns": 1, "time": 0},
    }
    assert added["partitionValues"] == {"partition": "0", "segment": "1"}


def test_a_commit_says_who_made_it_and_carries_the_wall_clock(place: Stage, store: Store) -> None:
    append(store, range(1, 11), batches={"loader/a b": 3})
    snapshot, files = latest(store)
    place.now_ns = NOW_NS + 5 * 10**6
    store.commit(removing(files, staged(store, rows(range(4, 11))), run="r7"), snapshot)
    appended, removed = entry(place, 1), entry(place, 2)
    assert {(txn["appId"], txn["version"]) for txn in appended["txn"]} == {
        ("next_seq/0", 11),
        ("open_base/0", 1),
        ("batch/loader/a b", 3),
    }
    assert {txn["lastUpdated"] for txn in appended["txn"]} == {NOW_NS // 10**6}
    (remove,) = removed["remove"]
    assert remove["deletionTimestamp"] == NOW_NS // 10**6 + 5
    assert (remove["dataChange"], remove["size"]) == (True, files["file_bytes"][0].as_py())
    said = removed["commitInfo"][0]["userMetadata"]
    assert "\n" not in said
    assert json.loads(said) == {"run": "r7", "plan_id": "p"}
    assert "txn" not in removed


def test_a_quiet_stream_hides_removals_and_shows_new_rows(place: Stage) -> None:
    store = place.open(quiet=True)
    store.create()
    append(store, range(1, 11))
    snapshot, files = latest(store)
    swap = removing(files, staged(store, rows(range(4, 11)), rows([11])))
    store.commit(replace(swap, updates=[SetNextSeq(0, 12)]), snapshot)
    first, second = entry(place, 1), entry(place, 2)
    assert [add["dataChange"] for add in first["add"]] == [True]
    assert [remove["dataChange"] for remove in second["remove"]] == [False]
    by_rows = {json.loads(add["stats"])["numRecords"]: add["dataChange"] for add in second["add"]}
    assert by_rows == {7: False, 1: True}


@pytest.mark.parametrize(("quiet", "feed"), [(False, False), (True, False), (False, True)])
def test_what_comes_back_is_new_data_to_a_change_feed_alone(
    place: Stage, quiet: bool, feed: bool
) -> None:
    store = place.open(quiet=quiet)
    store.create()
    append(store, range(1, 11))
    if feed:
        set_property(place, "delta.enableChangeDataFeed", "true")
    snapshot, files = latest(store)
    copy = staged(store, rows(range(4, 11)))
    store.commit(removing(files, copy), snapshot)
    again = Swap(copy.select(LOGGED_FILES.names), files, {"run": "back"})
    version = store.commit(again, store.snapshot())
    copied, back = entry(place, version - 1), entry(place, version)
    assert [one["dataChange"] for one in (*copied["remove"], *back["remove"])] == [not quiet] * 2
    assert [one["dataChange"] for one in (*copied["add"], *back["add"])] == [feed] * 2


def test_what_comes_back_with_an_epoch_is_no_new_data(place: Stage, store: Store) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    purged = Swap(
        files.select(LOGGED_FILES.names),
        files.slice(0, 0),
        {"run": "purge"},
        [AssertEpoch(0)],
        [SetEpoch(2)],
    )
    store.commit(purged, snapshot)
    back = Swap(NOTHING, files, {"run": "back"}, [AssertEpoch(2)], [SetEpoch(0)])
    version = store.commit(back, store.snapshot())
    assert [add["dataChange"] for add in entry(place, version)["add"]] == [False]


@pytest.mark.parametrize(
    ("quiet", "setting", "value", "named"),
    [
        (True, "enableChangeDataFeed", "true", "change data feed"),
        (False, "appendOnly", "TRUE", "appendOnly"),
        (True, "appendOnly", "TRUE", "appendOnly"),
    ],
)
def test_nothing_is_removed_from_a_table_with_a_property_against_it(
    place: Stage, quiet: bool, setting: str, value: str, named: str
) -> None:
    store = place.open(quiet=quiet)
    store.create()
    set_property(place, f"delta.{setting}", value)
    append(store, range(1, 11))
    snapshot, files = latest(store)
    with pytest.raises(RefusedError, match=named):
        store.commit(removing(files), snapshot)
    assert len(sequences(store)) == 10


def test_a_table_with_constraints_is_only_rewritten(place: Stage, store: Store) -> None:
    append(store, range(1, 11))
    set_property(place, "delta.constraints.positive", "seq > 0")
    with pytest.raises(RefusedError, match="no new rows"):
        append(store, range(11, 13))
    snapshot, files = latest(store)
    store.commit(removing(files, staged(store, rows(range(4, 11)))), snapshot)
    assert sequences(store) == list(range(4, 11))


def test_tables_that_would_forget_their_sequences_are_refused(place: Stage, store: Store) -> None:
    set_property(place, "delta.setTransactionRetentionDuration", "interval 30 days")
    with pytest.raises(RefusedError, match="setTransactionRetentionDuration"):
        store.snapshot()


def test_known_features_are_allowed_by_name(place: Stage, store: Store) -> None:
    set_protocol(
        place, minReaderVersion=3, minWriterVersion=7, readerFeatures=[], writerFeatures=ALLOWED[:4]
    )
    append(store, range(1, 3))
    assert sequences(store) == [1, 2]


@pytest.mark.parametrize("feature", ["rowTracking", "icebergCompatV2", "notInventedYet"])
def test_unknown_features_are_refused_by_name(place: Stage, store: Store, feature: str) -> None:
    set_protocol(
        place,
        minReaderVersion=3,
        minWriterVersion=7,
        readerFeatures=[],
        writerFeatures=["invariants", feature],
    )
    with pytest.raises(RefusedError, match=feature):
        store.snapshot()


def test_old_protocols_that_imply_column_mapping_are_refused(place: Stage, store: Store) -> None:
    set_protocol(place, minReaderVersion=2, minWriterVersion=5)
    with pytest.raises(RefusedError, match="columnMapping"):
        store.snapshot()


@pytest.mark.parametrize(
    ("name", "changed", "error", "what"),
    [
        ("size", None, ForeignRowsError, "column size of the Delta table is missing"),
        ("size", {"name": "size", "type": "integer"}, ForeignRowsError, "is int32, not int64"),
        ("extra", {"name": "extra", "type": "long"}, RefusedError, r"no message has \(extra\)"),
    ],
)
def test_tables_with_other_columns_are_refused(
    place: Stage, store: Store, name: str, changed: Any, error: type[Exception], what: str
) -> None:
    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            fields = [field for field in schema["fields"] if field["name"] != name]
            if changed is not None:
                fields.append({"nullable": True, "metadata": {}} | changed)
            action["metaData"]["schemaString"] = json.dumps(schema | {"fields": fields})

    rewrite_log(place, change)
    with pytest.raises(error, match=what):
        store.snapshot()


def test_files_with_odd_names_are_removed_for_good(place: Stage, store: Store) -> None:
    """Delta accepts a removal with a doubly encoded path, but it has no effect."""
    folder = place.root / "messages" / "partition=0" / "segment=1"
    folder.mkdir(parents=True)
    pq.write_table(rows(range(1, 4)), folder / "a b%20c.parquet")
    log = place.root / "messages" / "_delta_log" / f"{1:020d}.json"
    size = (folder / "a b%20c.parquet").stat().st_size
    action = {
        "path": "partition=0/segment=1/a%20b%2520c.parquet",
        "partitionValues": {"partition": "0", "segment": "1"},
        "size": size,
        "modificationTime": 5,
        "dataChange": True,
    }
    log.write_text(json.dumps({"add": action}))
    snapshot, files = latest(store)
    assert files["path"].to_pylist() == ["partition=0/segment=1/a b%20c.parquet"]
    assert sequences(store) == [1, 2, 3]
    store.commit(removing(files), snapshot)
    assert store.snapshot().files.num_rows == 0
    store.commit(removing(files.slice(0, 0), files), store.snapshot())
    assert sequences(store) == [1, 2, 3]
    assert place.open().snapshot().counters.next_seq[0] == 4


def test_nulls_that_the_log_counts_are_refused_unread(place: Stage, store: Store) -> None:
    place.foreign(range(1, 4), 1, ts_ns=[1, 2, 3])
    path = place.root / "messages" / "_delta_log" / f"{1:020d}.json"
    path.write_text(path.read_text().replace(r"\"ts_ns\":0", r"\"ts_ns\":2"))
    with pytest.raises(ForeignRowsError, match="2 rows without ts_ns"):
        store.inventory(store.snapshot())


def test_a_checkpoint_is_written_when_ten_versions_are_new(place: Stage, store: Store) -> None:
    log = place.root / "messages" / "_delta_log"
    for seq in range(1, 10):
        append(store, [seq], batches={"loader": seq})
    store.finish()
    assert not list(log.glob("*.checkpoint*"))
    append(store, [10], batches={"loader": 10})
    store.finish()
    store.finish()
    assert [path.name for path in log.glob("*.checkpoint*")] == [f"{10:020d}.checkpoint.parquet"]
    for version in range(10):
        (log / f"{version:020d}.json").unlink()
    counters = place.open().snapshot().counters
    assert (counters.next_seq[0], counters.batches["loader"]) == (11, 10)


def test_commits_write_no_checkpoint_by_themselves(place: Stage, store: Store) -> None:
    set_property(place, "delta.checkpointInterval", "2")
    for seq in range(1, 6):
        append(store, [seq])
    assert not list((place.root / "messages" / "_delta_log").glob("*.checkpoint*"))


def test_rivals_that_keep_coming_first_end_in_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    tries = []

    def refuse(*_: Any, **__: Any) -> int:
        tries.append(1)
        raise commit.OvertakenError("a rival")

    monkeypatch.setattr(commit.CommitAttempt, "commit", refuse)
    monkeypatch.setattr(delta, "_LONGEST_PAUSE_S", 0)
    with pytest.raises(BusyError, match="20 times"):
        store.commit(removing(files), snapshot)
    assert len(tries) == 20


@pytest.mark.parametrize("data_change", [True, False])
@pytest.mark.parametrize("rewrites", [True, False])
def test_what_a_rival_compacted_after_the_snapshot_is_neither_doubled_nor_missed(
    place: Stage, store: Store, data_change: bool, rewrites: bool
) -> None:
    """deltalake's own retries overlook rivals that removed with dataChange=false, as OPTIMIZE does."""
    append(store, range(1, 11))
    append(store, range(11, 21))
    snapshot, files = latest(store)
    rival = place.open()
    compacted = staged(rival, rows(range(1, 21)))
    at_ms = NOW_NS // 10**6
    actions = [
        *(remove_action(r, None, data_change=data_change, at_ms=at_ms) for r in files.to_pylist()),
        *(add_action(r, None, data_change=data_change) for r in compacted.to_pylist()),
    ]
    log = place.root / "messages" / "_delta_log"
    (log / f"{snapshot.version + 1:020d}.json").write_bytes(encode(actions))
    mine = staged(store, rows(range(5, 11))) if rewrites else None
    with pytest.raises(StalePlanError):
        store.commit(removing(files.slice(0, 1), mine), snapshot)
    assert sequences(place.open()) == list(range(1, 21))


def meanwhile(store: Store, at: Step, act: Callable[[], object]) -> None:
    """Commit messages 1 to 3, with an act at the first occurrence of a step."""
    acts = [act]

    def watch(step: Step) -> None:
        if step is at and acts:
            acts.pop()()

    snapshot = store.snapshot()
    added = staged(store, rows(range(1, 4)))
    with watched_by(watch):
        store.commit(appending(added, 4), snapshot)


def test_a_commit_whose_entry_an_erasure_deleted_stands(place: Stage, store: Store) -> None:
    def erase() -> None:
        append(place.open(), range(4, 6))
        forget_log(Layout(str(place.root), "ORDERS"))

    meanwhile(store, Step.DELTA_COMMITTED, erase)
    assert sequences(place.open()) == [1, 2, 3, 4, 5]


def test_a_commit_whose_entry_is_gone_without_a_checkpoint_is_unknown(
    place: Stage, store: Store
) -> None:
    entry = place.root / "messages" / "_delta_log" / f"{1:020d}.json"
    with pytest.raises(CommitUnknownError, match="deleted as soon as it was written"):
        meanwhile(store, Step.DELTA_COMMITTED, entry.unlink)
    assert list(place.root.rglob("segment=1/*.parquet"))


def test_an_entry_before_an_erasure_is_no_commit(place: Stage, store: Store) -> None:
    def commit_twice_and_erase() -> None:
        append(place.open(), range(1, 3))
        append(place.open(), range(3, 5))
        forget_log(Layout(str(place.root), "ORDERS"))

    with pytest.raises(
        CommitUnknownError, match=r"log was deleted up to version 0.*delete no file"
    ):
        meanwhile(store, Step.ENTRY_SYNCED, commit_twice_and_erase)
    assert sequences(place.open()) == [1, 2, 3, 4]


def fail_put(monkeypatch: pytest.MonkeyPatch, error: Exception, *, after: bool) -> None:
    """Let the put of an entry fail, before or after it happens."""

    def failing(*args: Any) -> bool:
        if after:
            put_if_absent(*args)
        raise error

    monkeypatch.setattr(commit, "put_if_absent", failing)


@pytest.mark.parametrize("error", [StorageError("x"), CommitUnknownError("y")])
def test_a_commit_whose_answer_was_lost_is_found_in_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    snapshot = store.snapshot()
    fail_put(monkeypatch, error, after=True)
    assert store.commit(appending(staged(store, rows(range(1, 4))), 4), snapshot) == 1
    assert sequences(store) == [1, 2, 3]


def test_a_commit_that_the_disk_refused_changed_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = store.snapshot()
    fail_put(monkeypatch, StorageError("No space left on device"), after=False)
    added = staged(store, rows(range(1, 4)))
    with pytest.raises(RetentionError, match=r"No space left.*nothing was changed") as caught:
        store.commit(appending(added, 4), snapshot)
    assert not isinstance(caught.value, CommitUnknownError)
    assert store.snapshot().version == 0


def test_a_commit_that_cannot_be_looked_up_is_unknown_and_its_files_stay(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = store.snapshot()
    fail_put(monkeypatch, StorageError("gone"), after=False)
    added = staged(store, rows(range(1, 4)))

    def unreadable(*_: Any) -> None:
        raise OSError("gone")

    monkeypatch.setattr(commit, "find_token", unreadable)
    with pytest.raises(CommitUnknownError, match="delete no file"):
        store.commit(appending(added, 4), snapshot)
    store.discard(added["path"].to_pylist())
    assert (place.root / "messages" / added["path"][0].as_py()).exists()


def test_a_table_without_counters_gets_them_from_its_files(place: Stage, store: Store) -> None:
    place.foreign(range(5, 8), 5)
    assert place.open().snapshot().counters.next_seq[0] == 8
    append(store, range(8, 10), segment=5)
    transactions = {txn["appId"]: txn["version"] for txn in entry(place, 2)["txn"]}
    assert transactions == {"next_seq/0": 10, "open_base/0": 5}


def test_a_counter_of_a_partition_without_files_is_found(place: Stage, store: Store) -> None:
    table = DeltaTable(place.root / "messages")
    table.create_write_transaction(
        [],
        "append",
        table.schema(),
        partition_by=["partition", "segment"],
        commit_properties=CommitProperties(app_transactions=[Transaction("next_seq/3", 77, 1)]),
    )
    counters = store.inventory(store.snapshot()).counters
    assert counters.next_seq.get(3) == 77
    assert counters.next_seq.get(4) is None


def test_a_log_that_cannot_be_read_is_damaged(place: Stage, store: Store) -> None:
    append(store, range(1, 3))
    (place.root / "messages" / "_delta_log" / f"{1:020d}.json").write_text("{broken")
    with pytest.raises(RetentionError) as caught:
        store.snapshot()
    assert caught.value.exit_code == 6


def test_a_missing_table_is_a_usage_error(place: Stage) -> None:
    with pytest.raises(UsageError, match="no Delta table"):
        place.open().snapshot()


def test_a_percent_sign_above_the_stream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="percent sign"):
        Stage("delta", tmp_path / "100%25" / "streams" / "ORDERS").open().create()


def test_two_streams_whose_names_decode_alike_stay_apart(tmp_path: Path) -> None:
    names = ("A.B", "A%2EB", "A%252EB")
    stores = [Stage("delta", tmp_path / "streams" / name).open() for name in names]
    for number, store in enumerate(stores):
        store.create()
        append(store, range(1, 2 + number))
    assert [len(sequences(store)) for store in stores] == [1, 2, 3]


def log_entry(place: Stage, version: int) -> Path:
    return place.root / "messages" / "_delta_log" / f"{version:020d}.json"


def test_a_store_that_opened_its_table_reads_later_entries_alone(
    place: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, range(1, 3))
    store.snapshot()
    whole: list[str] = []
    read = snapshots.read

    def counted(root: str) -> snapshots.DeltaSnapshot:
        whole.append(root)
        return read(root)

    monkeypatch.setattr(snapshots, "read", counted)
    for first in range(3, 60, 3):
        append(store, range(first, first + 3))
    assert sequences(store) == list(range(1, 60))
    assert not whole
    append(place.open(), range(60, 62))
    assert whole == [str(place.root / "messages")]
    assert sequences(store) == list(range(1, 62))
    assert latest(store)[1].column(0).num_chunks < 30


def test_a_store_that_opened_its_table_sees_that_an_entry_is_missing(
    place: Stage, store: Store
) -> None:
    append(store, range(1, 3))
    store.snapshot()
    for seq in (3, 4):
        append(place.open(), [seq])
    log_entry(place, 2).unlink()
    with pytest.raises(RetentionError, match=f"{2:020d}.json: this entry"):
        store.snapshot()


def test_a_store_that_opened_its_table_sees_another_in_its_place(
    place: Stage, store: Store
) -> None:
    append(store, range(1, 3))
    store.snapshot()
    shutil.rmtree(place.root)
    again = place.open()
    again.create()
    append(again, range(1, 6))
    assert sequences(store) == [1, 2, 3, 4, 5]
