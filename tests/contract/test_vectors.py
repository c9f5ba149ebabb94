"""Streams with deletion vectors: few removals from a file need no copy of it, and every reader sees the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.reclaim.run import reclaim_now
from retention.context.context import OpenedStream
from retention.core.read_count import ReadCount
from retention.core.vector_paths import data_path, vector_place
from retention.datafile.parquet import describe
from retention.delta import entries, vectors
from retention.errors import (
    CommitUnknownError,
    DamagedError,
    HiddenRowsError,
    StalePlanError,
    VerificationError,
)
from retention.storage import files
from retention.storage.crash_points import Step, watched_by
from retention.stores.delta import log as delta_log
from tests.support.laying import START, even_segments, held, lay, warehouse_with
from tests.support.reclaiming import again, later

NOW = START + 100 * 10**9


def stream_of_40(folder: Path, **limits: Any) -> Warehouse:
    """A stream with vectors, of four segments of ten messages on three subjects."""
    streams = warehouse_with(folder, "delta", NOW, vectors=True, **limits)
    if not streams.stream("ORDERS").opened.store.exists():
        lay(streams.stream("ORDERS").opened, even_segments(4, 10))
    return streams


def seqs(streams: Warehouse) -> list[int]:
    return [seq for rows in streams.stream("ORDERS").messages() for seq in rows["seq"].to_pylist()]


def delete(streams: Warehouse, *wanted: int) -> str:
    return str(streams.stream("ORDERS").delete(*wanted).apply().run)


def live(streams: Warehouse) -> list[str]:
    opened = streams.stream("ORDERS").opened
    paths: list[str] = opened.store.snapshot().files["path"].to_pylist()
    return sorted(paths)


def without(*gone: int) -> list[int]:
    return [seq for seq in range(1, 41) if seq not in gone]


def table_of(folder: Path) -> Path:
    return folder / "streams" / "ORDERS" / "messages"


def stored(folder: Path, suffix: str) -> set[str]:
    return {
        str(path.relative_to(table_of(folder))) for path in table_of(folder).rglob(f"*{suffix}")
    }


def digests(folder: Path) -> set[str]:
    """The names of the files that have a subject digest."""
    place = folder / "streams" / "ORDERS" / "_retention" / "subjects"
    return {str(path.relative_to(place)) for path in place.rglob("*.parquet*")}


def test_few_removals_hide_rows_and_write_no_data_file(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    before = stored(warehouse, ".parquet")
    report = streams.stream("ORDERS").delete(3, 4, 17).apply()
    assert (report.segments["rewritten"], report.bytes_written) == (2, 0)
    assert stored(warehouse, ".parquet") == before
    assert len(stored(warehouse, ".bin")) == 2
    assert seqs(streams) == without(3, 4, 17)
    assert streams.stream("ORDERS").state().messages == 37


def test_other_readers_see_what_stays(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    delete(streams, 3, 4, 17)
    delete(streams, 5, 40)
    wanted = without(3, 4, 5, 17, 40)
    place = str(table_of(warehouse))
    assert sorted(pl.scan_delta(place).select("seq").collect()["seq"].to_list()) == wanted
    features = json.loads(
        (table_of(warehouse) / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[1]
    )
    assert features["protocol"]["readerFeatures"] == ["deletionVectors"]


def test_statistics_are_those_of_the_rows_that_stay_and_open_no_file(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    delete(streams, 1, 10, 25)
    opened = again(warehouse)
    found = opened.store.inventory(opened.store.snapshot())
    assert found.read == ReadCount()
    for row, file in zip(
        found.files.to_pylist(), opened.store.data_files(found.files), strict=True
    ):
        assert row == describe(file).stats
    (Path(opened.root) / "_retention" / "stats").rename(warehouse / "stats")
    once_more = again(warehouse)
    assert once_more.store.inventory(once_more.store.snapshot()).files.equals(found.files)


def test_a_file_with_many_dead_rows_is_copied(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    delete(streams, 1, 2, 3)
    assert any(map(vector_place, live(streams)))
    report = streams.stream("ORDERS").delete(4, 5).apply()
    assert report.bytes_written > 0
    assert not any(map(vector_place, live(streams)))
    assert seqs(streams) == without(1, 2, 3, 4, 5)


def test_a_compaction_rewrites_what_is_dead_enough(warehouse: Path) -> None:
    streams = stream_of_40(warehouse, whole_segments=False)
    delete(streams, 1, 2, 11)
    stream = streams.stream("ORDERS")
    [merge] = stream.compact().plan.merges
    assert (merge.reason, merge.segment) == ("dead_rows", 1)
    stream.compact().apply()
    assert [vector_place(path) is not None for path in live(streams)].count(True) == 1
    assert seqs(streams) == without(1, 2, 11)


@pytest.mark.parametrize("newest_first", [True, False])
def test_runs_are_undone_in_any_order(warehouse: Path, *, newest_first: bool) -> None:
    streams = stream_of_40(warehouse)
    before, paths = held(streams), live(streams)
    runs = [delete(streams, 3), delete(streams, 4, 17), delete(streams, 5)]
    for run in sorted(runs, reverse=newest_first):
        streams.undo(run)
    assert held(streams).equals(before)
    if newest_first:
        assert live(streams) == paths


def test_a_run_can_be_undone_after_a_compaction(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    before = held(streams)
    runs = [delete(streams, 1, 2), delete(streams, 3)]
    streams.stream("ORDERS").compact().apply()
    assert not any(map(vector_place, live(streams)))
    for run in runs:
        streams.undo(run)
    assert held(streams).equals(before)


def test_purge_and_checkpoints_read_files_under_vectors(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    for seq in range(2, 38, 3):
        delete(streams, seq)
    log = table_of(warehouse) / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    gone = range(2, 38, 3)
    assert seqs(streams) == without(*gone)
    streams.stream("ORDERS").purge(subject="s.1").apply()
    assert seqs(streams) == [seq for seq in without(*gone) if seq % 3 != 1]


def test_a_file_under_a_vector_is_dropped_as_a_whole(warehouse: Path) -> None:
    streams = stream_of_40(warehouse, max_age="80s")
    delete(streams, 3)
    [outcome] = streams.apply()
    assert outcome.value is not None
    assert (outcome.value.segments["dropped"], outcome.value.removed_messages) == (2, 19)
    assert seqs(streams) == list(range(21, 41))


def test_what_is_under_a_live_vector_is_not_reclaimed(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = stream_of_40(warehouse, grace="1h")
    delete(streams, 3)
    delete(streams, 4)
    assert len(stored(warehouse, ".bin")) == 2
    reclaim_now(later(warehouse, monkeypatch))
    [kept] = stored(warehouse, ".bin")
    assert kept in {vector.path for path in live(streams) if (vector := vector_place(path))}
    assert seqs(streams) == without(3, 4)
    assert stored(warehouse, ".parquet") == {data_path(path) for path in live(streams)}
    # The counts of subjects go with the vector that they belong to.
    assert digests(warehouse) == {*live(streams), *map(data_path, live(streams))}


def test_no_counts_of_subjects_are_left_of_reclaimed_files(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = stream_of_40(warehouse, grace="1h")
    delete(streams, 3)
    delete(streams, 4)
    streams.stream("ORDERS").purge().apply()
    reclaim_now(later(warehouse, monkeypatch))
    assert digests(warehouse) == set()


def test_an_erasure_keeps_the_vectors_that_an_undo_needs(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    delete(streams, 3)
    run = delete(streams, 4)
    [old, new] = sorted(stored(warehouse, ".bin"))
    streams.stream("ORDERS").erase(seqs=[17], reason="request 7").apply()
    assert stored(warehouse, ".bin") == {old, new}
    streams.undo(run)
    assert seqs(streams) == without(3, 17)
    streams.stream("ORDERS").erase(seqs=[5], reason="request 8").apply()
    assert stored(warehouse, ".bin") == set()


def test_a_damaged_vector_is_refused_by_name(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    delete(streams, 3)
    [name] = stored(warehouse, ".bin")
    place = table_of(warehouse) / name
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedError, match=f"{name}: a deletion vector cannot be read"):
        seqs(stream_of_40(warehouse))


def test_a_vector_that_hides_more_rows_than_there_are_is_refused(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    hide(streams.stream("ORDERS").opened, {11: [4, 10]})
    with pytest.raises(DamagedError, match=r"hides row 10 of .*, which has 10; nothing"):
        seqs(stream_of_40(warehouse))


def hide(opened: OpenedStream, dead: dict[int, list[int]], *, inline: bool = False) -> None:
    """Commit vectors of the files of segments, as another writer's DELETE: in one file, or in the log."""
    root = opened.layout.messages
    snapshot = opened.store.snapshot()
    rows = snapshot.files.filter(pa.compute.is_in(snapshot.files["segment"], pa.array([*dead])))
    bitmaps = [BitMap64(positions) for positions in dead.values()]
    written = list(map(vectors.inline, bitmaps)) if inline else vectors.write_vectors(root, bitmaps)
    actions = [{"commitInfo": {"operation": "DELETE", "engineInfo": "Apache-Spark/4"}}]
    for row, vector in zip(rows.sort_by("segment").to_pylist(), written, strict=True):
        values = {"partition": "0", "segment": str(row["segment"])}
        add = {"path": row["path"], "size": row["file_bytes"], "partitionValues": values}
        add |= {"modificationTime": row["modified_ms"], "stats": json.dumps({"numRecords": 10})}
        actions += [entries.remove_of(add, 1), entries.with_vector(add, vector, 1)]
    place = Path(delta_log.place_of(opened.layout, snapshot.version + 1))
    place.write_bytes(entries.encode(actions))


def test_vectors_of_another_writer_are_read_and_removed(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    plan = streams.stream("ORDERS").delete(5)
    hide(streams.stream("ORDERS").opened, {1: [0, 9], 11: [4]})
    assert seqs(stream_of_40(warehouse)) == without(1, 10, 15)
    with pytest.raises(StalePlanError):
        plan.apply()
    delete(streams, 2, 16)
    assert seqs(streams) == without(1, 2, 10, 15, 16)
    streams.stream("ORDERS").purge().apply()
    assert seqs(streams) == []


def test_vectors_in_the_log_itself_are_refused_without_spark(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    hide(streams.stream("ORDERS").opened, {11: [4]}, inline=True)
    with pytest.raises(HiddenRowsError, match="1 file carries deletion vectors in the log itself"):
        delete(stream_of_40(warehouse), 3)


def test_an_archive_has_what_a_vector_left(warehouse: Path) -> None:
    streams = stream_of_40(warehouse, archive="archive", max_age="80s")
    delete(streams, 3, 13)
    streams.apply()
    assert seqs(streams) == list(range(21, 41))
    streams.stream("ORDERS").restore()
    assert seqs(streams) == list(range(1, 41))


def test_the_inventory_cache_follows_vectors(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    store = streams.stream("ORDERS").opened.store
    token = store.version_token()
    assert token is not None
    store.cache_inventory(store.inventory(store.snapshot()), token)
    run = delete(streams, 3, 17)
    delete(streams, 4)
    for undone in (None, run):
        if undone is not None:
            streams.undo(undone)
        opened = again(warehouse).store
        now = opened.version_token()
        assert now is not None
        cached = opened.incremental_inventory(now)
        assert cached is not None
        prefix = cached.head(100)
        assert prefix is not None
        assert prefix.inventory.files.equals(opened.inventory(opened.snapshot()).files)


def test_an_interrupted_run_deletes_its_vectors_alone(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)

    def interrupt(step: Step) -> None:
        if step is Step.HISTORY_BEGUN:
            raise KeyboardInterrupt

    with watched_by(interrupt), pytest.raises(KeyboardInterrupt):
        delete(streams, 3, 17)
    assert stored(warehouse, ".bin") == set()
    assert seqs(streams) == without()


def test_vectors_of_a_run_that_never_committed_are_reclaimed_alone(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = stream_of_40(warehouse, grace="1h")

    def vanish(step: Step) -> None:
        if step is Step.DELTA_COMMITTING:
            raise CommitUnknownError("the process is gone")

    with watched_by(vanish), pytest.raises(CommitUnknownError):
        delete(streams, 3)
    delete(streams, 17)
    assert len(stored(warehouse, ".bin")) == 2
    reclaim_now(later(warehouse, monkeypatch))
    assert len(stored(warehouse, ".bin")) == 1
    assert seqs(streams) == without(17)


def test_vectors_on_an_object_store(bucket: str) -> None:
    config = {"defaults": {"vectors": True}, "streams": [{"name": "ORDERS", "subjects": ["s.*"]}]}
    files.replace(f"{bucket}/retention.yaml", json.dumps(config).encode())
    streams = open_warehouse(bucket, engine="local")
    lay(streams.new_stream("ORDERS").opened, even_segments(4, 10))
    run = delete(streams, 3, 17)
    delete(streams, 4)
    assert seqs(open_warehouse(bucket, engine="local")) == without(3, 4, 17)
    streams.undo(run)
    assert seqs(streams) == without(4)


def test_both_engines_hide_the_same_rows_and_spark_reads_the_rest(
    warehouse: Path, spark: SparkSession
) -> None:
    left = []
    for engine in ("local", "spark"):
        folder = warehouse / engine
        streams = stream_of_40(folder)
        delete(streams, 3)
        again_with = open_warehouse(folder / "retention.yaml", engine=engine, clock=lambda: NOW)
        again_with.stream("ORDERS").delete(4, 17, 30).apply()
        left.append(held(again_with))
        read = again_with.stream("ORDERS").read(spark).select("seq").collect()
        assert sorted(row["seq"] for row in read) == without(3, 4, 17, 30)
        assert len(stored(folder, ".parquet")) == 4
    assert left[0].equals(left[1])
    again_with.stream("ORDERS").compact().apply()
    assert held(again_with).equals(left[0])


def test_removed_messages_are_explained_and_a_lost_vector_ends_their_undo(warehouse: Path) -> None:
    streams = stream_of_40(warehouse)
    delete(streams, 3)
    run = delete(streams, 4)
    text = repr(streams.stream("ORDERS").explain(4))
    assert run in text
    assert "s.1" in text
    vector = vector_place(live(streams)[0])
    assert vector is not None
    [first] = stored(warehouse, ".bin") - {vector.path}
    (table_of(warehouse) / first).unlink()
    with pytest.raises(VerificationError, match="1 of 1 removed file no longer exist"):
        streams.undo(run)
