"""The contract of every store, for any table format."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.core.read_count import ReadCount
from retention.core.table_updates import SetBatch, SetNextSeq, SetOpenBase
from retention.datafile import parquet
from retention.errors import (
    ConflictError,
    DamagedError,
    ForeignRowsError,
    RefusedError,
    StalePlanError,
    VerificationError,
)
from retention.ports import Store, Swap, TableStore
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from tests.contract.conftest import STORES, Stage
from tests.contract.streams import (
    NOTHING,
    append,
    appending,
    latest,
    live,
    removing,
    rows,
    sequences,
    staged,
)
from tests.support.buckets import ObjectPath

pytestmark = [
    pytest.mark.every_format,
    pytest.mark.parametrize("stage", STORES, indirect=True),
]


def place(location: str) -> Path | ObjectPath:
    return ObjectPath(location) if location.startswith("s3://") else Path(location)


def test_opening_a_store_touches_nothing(stage: Stage) -> None:
    store = stage.open()
    assert not store.exists()
    assert not stage.root.exists()


def test_a_created_stream_is_empty_and_creating_again_changes_nothing(stage: Stage) -> None:
    store = stage.open()
    store.create()
    before = store.snapshot()
    stage.open().create()
    after = stage.open().snapshot()
    assert store.exists()
    assert (
        (after.version, after.table_id) == (before.version, before.table_id) == (0, after.table_id)
    )
    assert after.files.num_rows == 0
    assert store.inventory(after).files.equals(FILE_STATS.empty_table())
    assert sequences(store) == []


def test_many_that_make_one_stream_at_once_make_it_once(stage: Stage) -> None:
    at_once = Barrier(8)

    def make(_: int) -> str:
        store = stage.open()
        at_once.wait()
        store.create()
        return store.snapshot().table_id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(make, range(8)))) == 1


def test_what_was_appended_is_there_with_its_counters(store: Store) -> None:
    assert append(store, range(1, 11), batches={"loader": 7}) == 1
    snapshot = store.snapshot()
    found = store.inventory(snapshot)
    assert snapshot.version == found.version == 1
    assert dict(found.counters.next_seq) == {0: 11}
    assert dict(found.counters.open_base) == {0: 1}
    assert found.counters.batches.get("loader") == 7
    assert found.counters.batches.get("nobody") is None
    assert set(LOGGED_FILES.names) <= set(snapshot.files.column_names)
    row = found.files.to_pylist()[0]
    assert (row["messages"], row["bytes"], row["min_seq"], row["max_seq"]) == (10, 500, 1, 10)
    assert sequences(store) == list(range(1, 11))


def test_an_inventory_of_own_files_opens_none(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    for path in (stage.root / "messages").rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            path.write_bytes(os.urandom(len(path.read_bytes())))
    again = stage.open()
    snapshot = again.snapshot()
    assert again.count_undescribed(snapshot) == 0
    assert again.inventory(snapshot).read == ReadCount()


def test_statistics_are_sorted_by_segment_and_sequence(store: Store) -> None:
    append(store, range(1, 5), segment=1)
    append(store, range(5, 9), segment=1)
    append(store, range(9, 12), segment=9)
    found = live(store)
    assert found["min_seq"].to_pylist() == [1, 5, 9]
    assert found["segment"].to_pylist() == [1, 1, 9]
    assert found.schema.equals(FILE_STATS)


def test_a_swap_replaces_one_file_by_another(store: Store) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    assert store.commit(removing(files, staged(store, rows(range(4, 11)))), snapshot) == 2
    assert sequences(store) == list(range(4, 11))
    assert dict(store.snapshot().counters.next_seq) == {0: 11}


def test_emptying_a_stream_gives_no_sequence_back(store: Store) -> None:
    append(store, range(1, 11), segment=1)
    append(store, range(11, 21), segment=11)
    snapshot, files = latest(store)
    store.commit(removing(files), snapshot)
    after = store.inventory(store.snapshot())
    assert after.files.num_rows == 0
    assert (after.counters.next_seq[0], after.counters.open_base[0]) == (21, 11)


def test_counters_alone_can_be_committed(store: Store) -> None:
    snapshot = store.snapshot()
    store.commit(appending(FILE_STATS.empty_table(), 500, segment=500), snapshot)
    counters = store.snapshot().counters
    assert (counters.next_seq[0], counters.open_base[0]) == (500, 500)


def test_of_two_appends_from_one_snapshot_the_second_is_refused(store: Store) -> None:
    snapshot = store.snapshot()
    mine, theirs = staged(store, rows(range(1, 6))), staged(store, rows(range(1, 4)))
    store.commit(appending(theirs, 4), snapshot)
    with pytest.raises(ConflictError, match="another commit came first"):
        store.commit(appending(mine, 6), snapshot)
    assert sequences(store) == [1, 2, 3]


def test_a_removal_goes_through_after_an_append_came_first(store: Store) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    append(store, range(11, 13))
    assert store.commit(removing(files), snapshot) == 3
    assert sequences(store) == [11, 12]


def test_a_removal_of_files_that_a_rival_removed_is_stale(store: Store) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    rewritten = staged(store, rows(range(5, 11)))
    store.commit(removing(files, rewritten), snapshot)
    with pytest.raises(StalePlanError, match="no longer in the table"):
        store.commit(removing(files, staged(store, rows(range(8, 11)))), snapshot)
    assert sequences(store) == list(range(5, 11))


@pytest.mark.parametrize("column", ["file_bytes", "modified_ms"])
def test_a_pin_that_differs_from_the_table_is_stale(store: Store, column: str) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    at = files.schema.get_field_index(column)
    pins = files.set_column(at, files.schema.field(at), pa.array([1], pa.int64()))
    with pytest.raises(StalePlanError, match=column):
        store.commit(removing(pins), snapshot)
    assert len(sequences(store)) == 10


def test_a_path_that_was_never_there_is_stale(store: Store) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    pins = files.set_column(0, files.schema.field(0), pa.array(["partition=0/segment=1/x.parquet"]))
    with pytest.raises(StalePlanError, match=r"segment=1/x\.parquet"):
        store.commit(removing(pins), snapshot)


def test_a_file_that_was_never_written_is_not_committed(store: Store) -> None:
    snapshot = store.snapshot()
    added = staged(store, rows(range(1, 11)))
    missing = added.set_column(
        0, added.schema.field(0), pa.array([f"partition=0/segment=1/{'0' * 32}.parquet"])
    )
    with pytest.raises(VerificationError, match="is missing"):
        store.commit(appending(missing, 11), snapshot)
    assert store.snapshot().version == 0


def test_a_staged_file_of_another_length_is_not_committed(store: Store) -> None:
    snapshot = store.snapshot()
    [file] = store.stage(0, 1)
    parquet.write_messages(file.location, [rows(range(1, 11))])
    added = parquet.stats_table([parquet.describe(file).stats])
    longer = place(file.location).read_bytes() + b"!"
    place(file.location).write_bytes(longer)
    with pytest.raises(VerificationError, match="bytes, not"):
        store.commit(appending(added, 11), snapshot)
    assert store.snapshot().version == 0


def test_a_file_is_not_added_twice(store: Store) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    with pytest.raises(StalePlanError, match="in the table already"):
        store.commit(Swap(NOTHING, files, {"run": "r"}), snapshot)


def test_a_sequence_is_not_added_twice(store: Store) -> None:
    append(store, range(1, 11))
    snapshot = store.snapshot()
    added = staged(store, rows(range(10, 12)))
    with pytest.raises(VerificationError, match="may not stand twice"):
        store.commit(Swap(NOTHING, added, {"run": "r"}), snapshot)
    assert sequences(store) == list(range(1, 11))


def test_a_file_outside_its_segment_is_not_committed(store: Store) -> None:
    snapshot = store.snapshot()
    with pytest.raises(VerificationError, match="outside 5 to 10"):
        store.commit(appending(staged(store, rows(range(1, 11)), segment=5), 11), snapshot)


@pytest.mark.parametrize(
    ("swap", "what"),
    [
        (Swap(NOTHING, FILE_STATS.empty_table(), {}, updates=[SetNextSeq(0, 10)]), "next sequence"),
        (Swap(NOTHING, FILE_STATS.empty_table(), {}, updates=[SetOpenBase(0, 0)]), "open base"),
        (Swap(NOTHING, FILE_STATS.empty_table(), {}, updates=[SetBatch("loader", 7)]), "batch 7"),
    ],
)
def test_no_counter_ever_falls(store: Store, swap: Swap, what: str) -> None:
    append(store, range(1, 11), batches={"loader": 7})
    with pytest.raises(ConflictError, match=what):
        store.commit(swap, store.snapshot())


def test_what_was_removed_comes_back_exactly(store: Store) -> None:
    append(store, range(1, 11))
    snapshot, before = latest(store)
    after = staged(store, rows(range(4, 11)))
    store.commit(removing(before, after), snapshot)
    store.commit(removing(after, before, run="undo"), store.snapshot())
    assert live(store).equals(before)
    assert sequences(store) == list(range(1, 11))
    assert store.snapshot().counters.next_seq[0] == 11


def test_what_is_gone_for_good_does_not_come_back(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    snapshot, before = latest(store)
    store.commit(removing(before), snapshot)
    for path in stage.root.rglob(Path(before["path"][0].as_py()).name):
        path.unlink()
    with pytest.raises(VerificationError, match="is missing"):
        store.commit(removing(NOTHING, before), store.snapshot())


def test_a_run_is_found_by_its_name(store: Store) -> None:
    append(store, range(1, 11))
    snapshot, files = latest(store)
    store.commit(removing(files, run="2026-11-21 ü"), snapshot)
    assert store.find_commit("2026-11-21 ü") == 2
    assert store.find_commit("append") == 1
    assert store.find_commit("another") is None


def test_staged_files_are_seen_by_nobody_until_committed(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    staged(store, rows(range(11, 21)))
    assert sequences(stage.open()) == list(range(1, 11))


def test_only_files_that_no_commit_named_are_discarded(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    committed = live(store)["path"].to_pylist()
    waste = staged(store, rows(range(11, 21)))["path"].to_pylist()
    store.discard(waste + committed)
    assert not list(stage.root.rglob(Path(waste[0]).name))
    assert sequences(store) == list(range(1, 11))


def test_another_store_discards_nothing(stage: Stage, store: Store) -> None:
    [file] = store.stage(0, 1)
    parquet.write_messages(file.location, [rows(range(1, 3))])
    stage.open().discard([file.path])
    assert place(file.location).exists()


def test_files_of_a_refused_commit_can_be_discarded(store: Store) -> None:
    snapshot = store.snapshot()
    [file] = store.stage(0, 1)
    parquet.write_messages(file.location, [rows(range(1, 3))])
    added = parquet.stats_table([parquet.describe(file).stats])
    append(store, range(1, 2))
    with pytest.raises(ConflictError):
        store.commit(appending(added, 3), snapshot)
    store.discard([file.path])
    assert not place(file.location).exists()


def test_subjects_are_counted_per_file(store: Store) -> None:
    append(store, range(1, 5))
    append(store, range(5, 7))
    counted = store.subject_counts(live(store))
    assert counted.sort_by([("file", "ascending"), ("subject", "ascending")]).to_pylist() == [
        {"file": 0, "subject": "orders.0", "messages": 1, "last_seq": 3},
        {"file": 0, "subject": "orders.1", "messages": 2, "last_seq": 4},
        {"file": 0, "subject": "orders.2", "messages": 1, "last_seq": 2},
        {"file": 1, "subject": "orders.0", "messages": 1, "last_seq": 6},
        {"file": 1, "subject": "orders.2", "messages": 1, "last_seq": 5},
    ]
    assert store.subject_counts(FILE_STATS.empty_table()).num_rows == 0


def test_lost_caches_cost_time_only(stage: Stage, store: Store) -> None:
    append(store, range(1, 5))
    before = live(store)
    counted = store.subject_counts(before)
    for name in ("stats", "subjects"):
        for path in (stage.root / "_retention" / name).rglob("*.parquet"):
            path.write_bytes(b"not Parquet")
    again = stage.open()
    assert live(again).equals(before)
    assert again.subject_counts(before).equals(counted)


def test_rows_that_another_writer_appended_are_taken_in(stage: Stage, store: TableStore) -> None:
    append(store, range(1, 11))
    stage.foreign(range(11, 16), segment=1)
    stage.foreign(range(16, 19), segment=16)
    snapshot = store.snapshot()
    assert store.count_undescribed(snapshot) == 2
    found = store.inventory(snapshot)
    assert found.read.files == 2
    assert found.read.bytes > 0
    assert (found.counters.next_seq[0], found.counters.open_base[0]) == (19, 16)
    assert found.files["messages"].to_pylist() == [10, 5, 3]
    again = stage.open()
    assert again.inventory(again.snapshot()).read == ReadCount()
    assert sequences(again) == list(range(1, 19))


def test_numbers_of_foreign_rows_are_never_given_again(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    stage.foreign(range(500, 511), segment=500)
    snapshot, files = latest(store)
    store.commit(removing(files.slice(1)), snapshot)
    counters = stage.open().snapshot().counters
    assert (counters.next_seq[0], counters.open_base[0]) == (511, 500)


def test_an_append_that_did_not_see_foreign_rows_is_refused(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    stage.foreign(range(11, 16), segment=1)
    snapshot = store.snapshot()
    with pytest.raises(ConflictError):
        store.commit(appending(staged(store, rows(range(11, 14))), 14), snapshot)
    with pytest.raises(ConflictError):
        store.commit(appending(staged(store, rows(range(11, 31))), 31), snapshot)


def test_interleaved_files_of_a_segment_are_fine_and_read_once(stage: Stage, store: Store) -> None:
    append(store, [1, 3, 5, 7])
    stage.foreign(range(2, 10, 2), segment=1)
    assert sequences(store) == [1, 2, 3, 4, 5, 6, 7, 8]
    again = stage.open()
    assert again.inventory(again.snapshot()).read == ReadCount()


@pytest.mark.parametrize(
    ("last", "foreign", "terms", "refusal"),
    [
        (10, range(10, 13), {"segment": 1}, "sequence 10 stands twice"),
        (2, range(3, 5), {"segment": 1, "seq": [3, 3]}, "twice"),
        (10, range(12, 15), {"segment": 5}, "not below 5, the next base"),
        (10, range(11, 15), {"segment": 13}, "below the base"),
    ],
    ids=["a sequence twice", "twice in one file", "segments that overlap", "rows below the base"],
)
def test_rows_that_break_the_rules_of_segments_are_refused(
    stage: Stage, store: Store, last: int, foreign: range, terms: dict[str, Any], refusal: str
) -> None:
    append(store, range(1, last + 1))
    stage.foreign(foreign, **terms)
    with pytest.raises(ForeignRowsError, match=refusal):
        store.inventory(store.snapshot())


def test_a_damaged_file_is_named(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    _, files = latest(store)
    file = place(store.data_files(files)[0].location)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match=file.name):
        store.data_files(files)
    file.unlink()
    with pytest.raises(DamagedError, match="is missing"):
        store.data_files(files)


def test_a_foreign_file_cut_in_half_is_named(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    stage.foreign(range(11, 400), segment=11)
    (file,) = (stage.root / "messages" / "partition=0" / "segment=11").glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match=file.name):
        store.inventory(store.snapshot())


def test_a_stream_of_the_other_format_is_refused(stage: Stage, store: Store) -> None:
    if isinstance(stage.root, ObjectPath):
        pytest.skip("there are no others on object stores: test_s3.py")
    other = Stage("parquet" if stage.format == "delta" else "delta", stage.root).open()
    for touch in (other.exists, other.create, other.snapshot):
        with pytest.raises(RefusedError, match=f"is stored as {stage.format}"):
            touch()
    (stage.root / "_retention" / "format.json").unlink()
    with pytest.raises(RefusedError, match=f"is stored as {stage.format}"):
        other.create()


def test_a_stream_of_a_newer_release_is_refused(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    content = f'{{"format_version": 99, "format": "{stage.format}"}}'
    (stage.root / "_retention" / "format.json").write_text(content)
    for touch in (store.exists, store.create, store.snapshot):
        with pytest.raises(RefusedError, match=r"format version 99.* up to 4"):
            touch()


def test_many_commits_in_a_row_keep_everything(stage: Stage, store: Store) -> None:
    count = 12 if isinstance(stage.root, ObjectPath) else 105
    for seq in range(1, count + 1):
        append(store, [seq])
    store.finish()
    again = stage.open()
    assert again.snapshot().version == count
    assert sequences(again) == list(range(1, count + 1))
    assert again.snapshot().counters.next_seq[0] == count + 1


def test_other_readers_see_the_same_rows(stage: Stage, store: Store) -> None:
    append(store, range(1, 11))
    append(store, range(11, 21), segment=11)
    snapshot, files = latest(store)
    rewritten = staged(store, rows(range(4, 11)))
    store.commit(removing(files.slice(0, 1), rewritten), snapshot)
    messages = stage.root / "messages"
    if stage.format == "delta":
        frame = pl.scan_delta(stage.table, storage_options=stage.options)
    else:
        frame = pl.scan_parquet(f"{messages}/**/*.parquet", hive_partitioning=True)
    seen = frame.filter(pl.col("seq") > 5).select("partition", "segment", "seq").collect()
    assert sorted(seen.rows()) == [
        *((0, 1, seq) for seq in range(6, 11)),
        *((0, 11, seq) for seq in range(11, 21)),
    ]


def test_streams_whose_names_need_escapes_work(stage: Stage) -> None:
    if isinstance(stage.root, ObjectPath):
        pytest.skip("refused by name on object stores: test_s3.py")
    odd = Stage(stage.format, stage.root.parent / "A%2EB%20%C3%A9")
    store = odd.open()
    store.create()
    append(store, range(1, 4))
    assert sequences(odd.open()) == [1, 2, 3]
    assert len(list((odd.root / "messages" / "partition=0" / "segment=1").glob("*.parquet"))) == 1
    schema = pq.ParquetFile(store.data_files(live(store))[0].location).schema_arrow
    assert "partition" not in schema.names
