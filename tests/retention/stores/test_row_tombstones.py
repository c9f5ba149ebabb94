"""Records of row tombstones keep few ranges in memory, and read records of earlier versions."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.core.inventory import DataFile
from retention.core.seq_ranges import ranges_in
from retention.errors import DamagedError
from retention.stores import tombstone_files
from retention.stores.layout import Layout
from retention.stores.row_tombstones import RowTombstoneRecords, recorded_file
from schemas.files import FILE_STATS, TOMBSTONED_FILES

MOST = 10
COUNTS = [1, 3, 4, 9, 1, 25, 2, 2, 2, 2, 2, 2, 7, 10, 1]
"""Ranges of each file of the record."""


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstone_files, "MOST_HELD", MOST)


@pytest.fixture
def records(tmp_path: Path) -> RowTombstoneRecords:
    return RowTombstoneRecords(Layout(str(tmp_path), "S"))


def path_of(number: int) -> str:
    return f"partition=0/segment={number * 100}/{number:032x}.parquet"


def stats_of(number: int) -> dict[str, object]:
    row: dict[str, object] = {field.name: 1 for field in FILE_STATS}
    return row | {
        "path": path_of(number),
        "partition": 0,
        "segment": number * 100,
        "in_time_order": True,
    }


def hidden_of(number: int, count: int) -> np.ndarray:
    firsts = number * 100 + 2 * np.arange(count)
    return np.stack([firsts, firsts], axis=1)


def rows(counts: list[int]) -> Iterator[tuple[dict[str, object], np.ndarray]]:
    for number, count in enumerate(counts):
        stats = stats_of(number)
        yield recorded_file(stats, stats), hidden_of(number, count)


def tables(counts: list[int]) -> list[pa.Table]:
    return list(tombstone_files.file_tables(rows(counts)))


def ranges_in_tables(read: list[pa.Table]) -> list[int]:
    return [len(table["first_seqs"].combine_chunks().flatten()) for table in read]


def data_file(number: int) -> DataFile:
    return DataFile(path_of(number), 0, number * 100, "", "")


@pytest.mark.parametrize("counts", [COUNTS, [2, 3, 5], [11], [0, 0, 4], []])
def test_a_record_is_read_as_it_was_written(
    records: RowTombstoneRecords, counts: list[int]
) -> None:
    record = records.read(records.write(tables(counts)))
    assert record.files["path"].to_pylist() == [path_of(number) for number in range(len(counts))]
    assert (record.place is None) is (sum(counts) <= MOST)
    for number, count in enumerate(counts):
        file = pickle.loads(pickle.dumps(record.hide(data_file(number))))  # noqa: S301
        assert ranges_in(file.hidden).tolist() == hidden_of(number, count).tolist()
        assert file.claim.messages == 1
    assert record.hide(data_file(99)) == data_file(99)
    everything = np.ones(len(counts), dtype=bool)
    together = pa.concat_tables([TOMBSTONED_FILES.empty_table(), *record.tables(everything)])
    assert together == pa.concat_tables([TOMBSTONED_FILES.empty_table(), *tables(counts)])


def test_few_ranges_are_held_at_a_time(records: RowTombstoneRecords) -> None:
    record = records.read(records.write(tables(COUNTS)))
    assert isinstance(record.ranges_of(path_of(3)), tombstone_files.RecordedRanges)
    assert "first_seqs" not in record.files.column_names
    wanted = np.arange(len(COUNTS)) % 2 == 0
    read = list(record.tables(np.ones(len(COUNTS), dtype=bool)))
    # Ranges of one file are never split.
    assert max(ranges_in_tables(read)) == max(COUNTS)
    assert sorted(ranges_in_tables(read))[-2] <= MOST
    some = pa.concat_tables(record.tables(wanted))
    assert some["path"].to_pylist() == [
        path_of(number) for number in np.flatnonzero(wanted).tolist()
    ]


def test_tables_that_are_written_are_let_go_one_by_one(records: RowTombstoneRecords) -> None:
    alive: set[int] = set()
    most = 0

    def made() -> Iterator[pa.Table]:
        nonlocal most
        for number, row in enumerate(rows([MOST - 1] * 20)):
            [table] = tombstone_files.file_tables([row])
            alive.add(number)
            weakref.finalize(table, alive.discard, number)
            most = max(most, len(alive))
            yield table
            del table

    assert len(records.read(records.write(made())).files) == 20
    assert most <= 3


def test_a_record_of_an_earlier_version_is_read_some_files_at_a_time(
    records: RowTombstoneRecords, tmp_path: Path
) -> None:
    whole = pa.concat_tables(tables([3] * 40))
    place = tmp_path / "_retention" / "released" / f"{7:020}.parquet"
    place.parent.mkdir(parents=True)
    pq.write_table(whole, place, compression="zstd", write_page_checksum=True)
    assert pq.read_metadata(place).num_row_groups == 1
    record = records.read(7)
    assert record.place == str(place)
    read = list(record.tables(np.ones(40, dtype=bool)))
    assert max(ranges_in_tables(read)) <= MOST
    assert pa.concat_tables(read) == whole
    assert ranges_in(record.ranges_of(path_of(31))).tolist() == hidden_of(31, 3).tolist()
    # An earlier version reads a table of one schema, with any number of row groups.
    again = tmp_path / "_retention" / "released" / f"{records.write([whole]):020}.parquet"
    assert pq.read_metadata(again).num_row_groups > 1
    assert pq.read_table(again) == whole


@pytest.mark.parametrize(
    ("first", "last"),
    [([3, 1], [3, 1]), ([1, 4], [5, 6]), ([4], [3]), ([-1], [3]), ([1, 2], [1]), ([None], [1])],
)
def test_ranges_that_are_none_are_refused(
    records: RowTombstoneRecords, first: list[int | None], last: list[int]
) -> None:
    stats = stats_of(0)
    row = recorded_file(stats, stats) | {"first_seqs": first, "last_seqs": last}
    number = records.write([pa.Table.from_pylist([row], schema=TOMBSTONED_FILES)])
    with pytest.raises(DamagedError, match="restore it from a copy"):
        records.read(number)


def test_a_record_that_is_gone_is_refused_where_its_ranges_are_needed(
    records: RowTombstoneRecords, tmp_path: Path
) -> None:
    file = records.read(records.write(tables(COUNTS))).hide(data_file(3))
    next((tmp_path / "_retention" / "released").iterdir()).unlink()
    with pytest.raises(DamagedError, match="restore it from a copy"):
        ranges_in(file.hidden)
