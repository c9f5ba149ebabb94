from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.inventory import DataFile
from retention.datafile import copied_groups, copied_payloads, deadline_writer, merge, parquet
from retention.datafile.copied_payloads import PAYLOAD, load_paged
from retention.datafile.merge import MergeResult, MergeTask, merge_files
from retention.datafile.parquet import open_with_bytes
from retention.datafile.subject_digest import digest_at
from retention.errors import VerificationError
from retention.schemas.messages import FILE_COLUMNS
from tests.retention.datafile.test_copied_groups import file_at, messages
from tests.support.laws import law_on_disk
from tests.support.other_readers import payloads_by_others

ROWS = messages(1, 30)


@pytest.fixture(autouse=True)
def small_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_payloads, "LEAST_PAYLOAD_BYTES", 0)
    monkeypatch.setattr(copied_groups, "LEAST_BYTES", messages(1, 20).nbytes)
    # No row group is copied as a whole.
    monkeypatch.setattr(copied_groups, "MOST_BYTES", 0)
    for module in (parquet, copied_groups, deadline_writer):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", 60)


def source(folder: Path, rows: pa.Table) -> DataFile:
    place = folder / f"{rows['seq'][0]}.parquet"
    parquet.write_messages(str(place), [rows])
    return file_at(place)


def sources(folder: Path, *edges: int) -> list[DataFile]:
    return [source(folder, messages(first, after - 1)) for first, after in pairwise(edges)]


def merged(target: Path, files: list[DataFile], count: int) -> MergeResult:
    return merge_files(MergeTask(tuple((file,) for file in files), (file_at(target),), count))


def payload_pages(place: str | Path, group: int = 0) -> bytes:
    column = pq.read_metadata(place).row_group(group).column(PAYLOAD)
    begin = column.data_page_offset
    return Path(place).read_bytes()[begin : begin + column.total_compressed_size]


def row_groups(place: Path) -> list[int]:
    metadata = pq.read_metadata(place)
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_pages_of_payloads_keep_their_bytes_in_large_row_groups(tmp_path: Path) -> None:
    files = sources(tmp_path, 1, 26, 51, 76, 101)
    target = tmp_path / "target"
    result = merged(target, files, 100)
    assert [row["messages"] for row in result.stats] == [100]
    assert pq.read_table(target).equals(messages(1, 100))
    assert row_groups(target) == [50, 50]
    assert payload_pages(target) == b"".join(payload_pages(file.location) for file in files[:2])
    column = pq.read_metadata(target).row_group(0).column(PAYLOAD)
    parts = [pq.read_metadata(file.location).row_group(0).column(PAYLOAD) for file in files[:2]]
    assert column.num_values == 50
    assert column.total_uncompressed_size == sum(part.total_uncompressed_size for part in parts)
    groups = [pq.read_metadata(file.location).row_group(0) for file in files[:2]]
    assert pq.read_metadata(target).row_group(0).total_byte_size < sum(
        group.total_byte_size for group in groups
    )


def test_every_reader_finds_the_payloads(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    target = table / "target.parquet"
    merged(target, sources(tmp_path, 1, 26, 51, 76, 101), 100)
    wanted = messages(1, 100)["payload"].to_pylist()
    assert pl.scan_parquet(target).filter(pl.col("seq") == 77).collect()["payload"].to_list() == [
        wanted[76]
    ]
    for payloads in payloads_by_others(target):
        assert payloads == wanted


def test_few_rows_are_decoded_and_merged_with_their_neighbours(tmp_path: Path) -> None:
    files = sources(tmp_path, 1, 6, 11, 16)
    merged(tmp_path / "target", files, 15)
    assert pq.read_table(tmp_path / "target").equals(messages(1, 15))
    assert row_groups(tmp_path / "target") == [15]


@law_on_disk
@given(edges=st.sets(st.integers(2, 200), min_size=1, max_size=12), data=st.data())
def test_a_merge_with_copied_payloads_equals_one_that_decodes_all(
    edges: set[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    files = sources(folder, *sorted({1, 201} | edges))
    spans, at = [], 0
    while at < len(files):
        count = data.draw(st.sampled_from((1, 1, 1, 2)))
        spans.append(tuple(files[at : at + count]))
        at += count
    merge_files(MergeTask(tuple(spans), (file_at(folder / "pages"),), 200))
    assert pq.read_table(folder / "pages").equals(messages(1, 200))
    assert max(row_groups(folder / "pages")) <= 60


def written(**settings: object) -> Callable[[Path], None]:
    options = {"write_page_checksum": True, "compression": "zstd", "use_dictionary": ["subject"]}

    def write(place: Path) -> None:
        pq.write_table(ROWS, place, **(options | settings))

    return write


def descending(place: Path) -> None:
    pq.write_table(
        ROWS.take(np.arange(30)[::-1]),
        place,
        write_page_checksum=True,
        compression="zstd",
        use_dictionary=False,
    )


def damaged(place: Path) -> None:
    written()(place)
    content = bytearray(place.read_bytes())
    column = pq.read_metadata(place).row_group(0).column(PAYLOAD)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    place.write_bytes(content)


NOT_COPIED = {
    "no checksums": written(write_page_checksum=False),
    "another codec": written(compression="snappy"),
    "a dictionary": written(use_dictionary=True),
    "pages of version 2": written(data_page_version="2.0"),
    "descending rows": descending,
    "a damaged page": damaged,
}


@pytest.mark.parametrize("kind", NOT_COPIED)
def test_other_pages_are_decoded(kind: str, tmp_path: Path) -> None:
    NOT_COPIED[kind](tmp_path / "file")
    file = file_at(tmp_path / "file")
    opened, content = open_with_bytes(file)
    assert load_paged(file, opened, content, 0) is None


def test_pages_of_this_engine_are_copied(tmp_path: Path) -> None:
    written()(tmp_path / "file")
    opened, content = open_with_bytes(file_at(tmp_path / "file"))
    assert load_paged(file_at(tmp_path / "file"), opened, content, 0) is not None


def test_hidden_rows_are_left_out(tmp_path: Path) -> None:
    files = sources(tmp_path, 1, 41, 81)
    files[0] = replace(files[0], hidden=np.array([[1, 3]], np.int64))
    merged(tmp_path / "target", files, 77)
    assert pq.read_table(tmp_path / "target")["seq"].to_pylist() == list(range(4, 81))


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    files = sources(tmp_path, 1, 41)
    damaged(tmp_path / "41.parquet")
    files.append(file_at(tmp_path / "41.parquet"))
    result = merged(tmp_path / "target", files, 70)
    assert result.stats == []
    assert "41.parquet" in (result.damage or "")


def test_payloads_that_read_back_differently_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "digests_of_payloads", lambda *_: {0: "another"})
    with pytest.raises(VerificationError, match="with payloads"):
        merged(tmp_path / "target", sources(tmp_path, 1, 41), 40)


def test_other_columns_that_read_back_differently_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_other_sizes(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index("size")
        other = rows["size"].take(np.arange(rows.num_rows)[::-1])
        whole = copied_payloads.without_payloads(rows)
        return whole.set_column(at, FILE_COLUMNS.field("size"), other)

    monkeypatch.setattr(merge, "without_payloads", with_other_sizes)
    with pytest.raises(VerificationError, match="nothing was committed"):
        merged(tmp_path / "target", sources(tmp_path, 1, 41), 40)


def test_the_digest_of_the_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    target = tmp_path / "target"
    merged(target, sources(tmp_path, 1, 41), 40)
    recorded = hashlib.sha256(target.read_bytes()).hexdigest()
    record = digest_at(file_at(target).digest_location).load()
    assert record is not None
    assert record.sha256 == recorded
