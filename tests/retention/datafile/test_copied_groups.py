from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.inventory import DataFile
from retention.core.message_rows import complete_rows
from retention.datafile import copied_groups, deadline_writer, parquet, rewrite
from retention.datafile.rewrite import RewriteTask, copy_remaining
from retention.errors import DamagedError
from retention.schemas.messages import FILE_COLUMNS
from tests.support.laws import law_on_disk

MESSAGES, GROUP = 240, 40


def messages(first: int, last: int) -> pa.Table:
    seqs = list(range(first, last + 1))
    payloads = [hashlib.sha256(str(seq).encode()).digest() * (seq % 3) for seq in seqs]
    raw = pa.table(
        {
            "seq": pa.array(seqs, pa.int64()),
            "subject": [f"s.{seq % 3}" for seq in seqs],
            "headers": pa.array([None if seq % 2 else b"NATS/1.0\r\n\r\n" for seq in seqs]),
            "payload": pa.array(payloads, pa.binary()),
            "ts_ns": pa.array([seq * 1_001 for seq in seqs], pa.int64()),
        }
    )
    return complete_rows(raw, "file").select(FILE_COLUMNS.names).cast(FILE_COLUMNS)


ROWS = messages(1, MESSAGES)


def file_at(place: Path) -> DataFile:
    return DataFile(place.name, 0, 1, str(place), f"{place}.digest")


def ours(place: Path) -> None:
    parquet.write_messages(str(place), [ROWS])


def arrow(**settings: object) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        pq.write_table(ROWS, place, row_group_size=GROUP, **settings)

    return write


def duckdb_file(place: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("rows", ROWS)
        connection.execute(f"COPY rows TO '{place}' (ROW_GROUP_SIZE {GROUP}, FORMAT parquet)")


def other_times(place: Path) -> None:
    at = FILE_COLUMNS.get_field_index("time")
    rows = ROWS.set_column(
        at, FILE_COLUMNS.field("time"), pa.nulls(MESSAGES, pa.timestamp("us", "UTC"))
    )
    pq.write_table(rows, place, row_group_size=GROUP, write_page_checksum=True)


COPIED = {
    "ours": ours,
    "pages of version 2": arrow(
        write_page_checksum=True, data_page_version="2.0", data_page_size=500
    ),
    "page index": arrow(write_page_checksum=True, write_page_index=True, data_page_size=500),
    "Bloom filter": arrow(
        write_page_checksum=True,
        compression="snappy",
        bloom_filter_options={"subject": {"ndv": 10, "fpp": 0.01}},
    ),
}
DECODED = {
    "no checksums": arrow(write_page_checksum=False),
    "no statistics": arrow(write_page_checksum=True, write_statistics=False),
    "DuckDB": duckdb_file,
    "Polars": lambda place: pl.DataFrame(ROWS).write_parquet(place, row_group_size=GROUP),
    "other times": other_times,
}


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parquet, copied_groups, rewrite, deadline_writer):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", GROUP)
    monkeypatch.setattr(copied_groups, "LEAST_BYTES", 0)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], DataFile]:
    folder = tmp_path_factory.mktemp("sources")

    def source(name: str) -> DataFile:
        place = folder / f"{name}.parquet"
        if not place.exists():
            (COPIED | DECODED)[name](place)
        return file_at(place)

    return source


def rewritten(source: DataFile, target: Path, *removed: tuple[int, int]) -> pq.ParquetFile:
    ranges = np.array(removed, np.int64).reshape(-1, 2)
    copy_remaining(RewriteTask(source, (file_at(target),), ranges))
    return pq.ParquetFile(target, page_checksum_verification=True)


def chunks(path: str | Path, number: int) -> list[bytes]:
    """The bytes of the columns of a row group."""
    content, group = Path(path).read_bytes(), pq.read_metadata(path).row_group(number)
    columns = [group.column(at) for at in range(group.num_columns)]
    begins = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return [
        content[begin : begin + column.total_compressed_size]
        for begin, column in zip(begins, columns, strict=True)
    ]


@pytest.mark.parametrize("name", COPIED)
def test_row_groups_that_lose_nothing_keep_their_bytes(
    name: str, sources: Callable[[str], DataFile], tmp_path: Path
) -> None:
    source = sources(name)
    written = rewritten(source, tmp_path / "target", (1, GROUP + 3), (4 * GROUP, 4 * GROUP))
    assert written.metadata.num_row_groups == 5
    for before, after in ((2, 1), (4, 3), (5, 4)):
        assert chunks(source.location, before) == chunks(tmp_path / "target", after)
    assert written.schema_arrow.equals(FILE_COLUMNS, check_metadata=True)
    assert written.metadata.metadata.keys() == {b"ARROW:schema"}


@pytest.mark.parametrize("name", DECODED)
def test_row_groups_of_others_are_decoded(
    name: str, sources: Callable[[str], DataFile], tmp_path: Path
) -> None:
    source = sources(name)
    written = rewritten(source, tmp_path / "target", (1, GROUP))
    assert written.read().equals(ROWS.slice(GROUP))
    last = pq.read_metadata(source.location).num_row_groups - 1
    written_last = written.metadata.num_row_groups - 1
    assert chunks(source.location, last) != chunks(tmp_path / "target", written_last)


@pytest.mark.parametrize("name", COPIED | DECODED)
@law_on_disk
@given(data=st.data())
def test_a_copy_equals_one_that_was_decoded_filtered_and_encoded(
    name: str,
    sources: Callable[[str], DataFile],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    edges = sorted(data.draw(st.sets(st.integers(1, MESSAGES), max_size=8)))
    removed = list(zip(edges[::2], edges[1::2], strict=False))
    folder, source = tmp_path_factory.mktemp("copy"), sources(name)
    by_bytes = copy_remaining(task(source, folder / "bytes.parquet", removed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copied_groups, "LEAST_BYTES", 1 << 60)
        decoded = copy_remaining(task(source, folder / "decoded.parquet", removed))
    assert pq.read_table(folder / "bytes.parquet").equals(pq.read_table(folder / "decoded.parquet"))
    assert [comparable(row) for row in by_bytes.stats] == [comparable(row) for row in decoded.stats]
    with duckdb.connect() as connection:
        for seq in (edges or [1])[:2]:
            query = f"SELECT count(*) FROM '{folder / 'bytes.parquet'}' WHERE seq = {seq}"  # noqa: S608
            gone = any(first <= seq <= last for first, last in removed)
            assert connection.execute(query).fetchall() == [(not gone,)]


def task(source: DataFile, target: Path, removed: list[tuple[int, int]]) -> RewriteTask:
    return RewriteTask(source, (file_at(target),), np.array(removed, np.int64).reshape(-1, 2))


def comparable(row: object) -> dict[str, object]:
    return {
        name: value
        for name, value in dict(row).items()  # type: ignore[call-overload]
        if name not in ("path", "file_bytes", "modified_ms")
    }


def test_the_digest_of_a_copy_is_that_of_its_bytes(
    sources: Callable[[str], DataFile], tmp_path: Path
) -> None:
    source = sources("ours")
    opened, stored_bytes = parquet.open_with_bytes(source)
    groups = copied_groups.copied_groups(source, opened, np.empty((0, 2), np.int64))
    stored = groups.load(3)
    assert stored is not None
    made = copied_groups.write_parts(str(tmp_path / "target"), [ROWS.slice(0, 100), stored])
    content = (tmp_path / "target").read_bytes()
    assert made.copied == copied_groups.digests_of_groups(source, stored_bytes, [3])
    assert made.sha256 == hashlib.sha256(content).hexdigest()
    written = pq.read_table(tmp_path / "target")
    assert written.equals(pa.concat_tables([ROWS.slice(0, 100), ROWS.slice(3 * GROUP, GROUP)]))


def test_small_row_groups_are_merged_with_the_rows_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (parquet, copied_groups, rewrite, deadline_writer):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", 100)
    source, written_rows = tmp_path / "source", 0
    with parquet.parquet_writer(str(source), ROWS) as writer:
        for rows in (40, 10, 10, 40, 10):
            writer.write_table(ROWS.slice(written_rows, rows))
            written_rows += rows
    large = pq.read_metadata(source).row_group(3).total_byte_size
    monkeypatch.setattr(copied_groups, "LEAST_BYTES", large)
    written = rewritten(file_at(source), tmp_path / "target", (1, 1)).metadata
    groups = [written.row_group(number).num_rows for number in range(written.num_row_groups)]
    assert groups == [59, 40, 10]
    assert chunks(source, 3) == chunks(tmp_path / "target", 1)


def test_damage_in_a_row_group_that_loses_nothing_is_named(
    sources: Callable[[str], DataFile], tmp_path: Path
) -> None:
    source = sources("ours")
    content = bytearray(Path(source.location).read_bytes())
    payload = pq.read_metadata(source.location).row_group(4).column(5)
    assert payload.path_in_schema == "payload"
    content[payload.data_page_offset + payload.total_compressed_size - 5] ^= 0xFF
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(bytes(content))
    with pytest.raises(DamagedError, match="damaged"):
        rewritten(file_at(damaged), tmp_path / "target", (1, 3))
    assert not (tmp_path / "target").exists()


def test_a_moved_source_is_copied_from_its_later_place(
    sources: Callable[[str], DataFile], tmp_path: Path
) -> None:
    source = sources("ours")
    moved = replace(source, location=str(tmp_path / "was here"), later=source.location)
    written = rewritten(moved, tmp_path / "target", (1, GROUP))
    assert chunks(source.location, 1) == chunks(tmp_path / "target", 0)
    assert written.metadata.num_rows == MESSAGES - GROUP
