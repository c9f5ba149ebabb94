from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from retention.storage.row_groups.compact import read_struct
from retention.storage.row_groups.footer import (
    OfChunk,
    OfColumn,
    UnknownLayoutError,
    chunks_of,
    read_footer,
)
from retention.storage.row_groups.join import JoinedFile
from retention.storage.row_groups.stored_group import check_group, load_group
from tests.support.laws import law_on_disk

ROWS, GROUP = 8_192, 2_048
GROUPS = ROWS // GROUP


def _texts(digits: int) -> list[str]:
    return [hashlib.sha256(str(row).encode()).hexdigest()[:digits] for row in range(ROWS)]


TABLE = pa.table(
    {
        "seq": pa.array(range(ROWS), pa.int64()),
        "subject": [f"s.{row % 7}" for row in range(ROWS)],
        "payload": pa.array([text.encode() for text in _texts(40)], pa.binary()),
        "part": pa.array([None if row % 3 else row / 7 for row in range(ROWS)]),
        "flag": pa.array([row % 2 == 0 for row in range(ROWS)]),
        "time": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
        "list": pa.array([[row, -row] if row % 5 else None for row in range(ROWS)]),
    }
)


def _arrow(**settings: object) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        pq.write_table(
            TABLE, path, row_group_size=GROUP, write_page_checksum=True, **settings
        )  # fmt: skip

    return write


def _duckdb(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("rows", TABLE)
        connection.execute(f"COPY rows TO '{path}' (ROW_GROUP_SIZE {GROUP}, COMPRESSION zstd)")


def _deltalake(path: Path) -> None:
    table = path.with_suffix(".table")
    write_deltalake(table, TABLE)
    [file] = DeltaTable(table).file_uris()
    Path(file).rename(path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "arrow, plain": _arrow(use_dictionary=False, compression="zstd"),
    "arrow, pages of version 2": _arrow(data_page_version="2.0", data_page_size=4_096),
    "arrow, page index": _arrow(write_page_index=True, data_page_size=4_096),
    "arrow, delta": _arrow(
        use_dictionary=False, column_encoding={"seq": "DELTA_BINARY_PACKED"}, compression="none"
    ),
    "arrow, Bloom filters": _arrow(
        bloom_filter_options={"seq": True, "subject": {"ndv": 10, "fpp": 0.01}},
        write_page_index=True,
    ),
    "duckdb": _duckdb,
    "polars": lambda path: pl.DataFrame(TABLE).write_parquet(path, row_group_size=GROUP),
    "deltalake": _deltalake,
}


@pytest.fixture(scope="module", params=WRITERS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "source.parquet"
    WRITERS[request.param](path)
    return path


def joined(source: Path, numbers: list[int]) -> bytes:
    """A file with these row groups of another."""
    sink = io.BytesIO()
    with pa.OSFile(str(source), "rb") as content:
        footer = read_footer(content)
        file = JoinedFile(sink)
        for number in numbers:
            file.add(load_group(content, footer, number))
        file.finish(footer.fields)
    return sink.getvalue()


def expected(source: Path, numbers: list[int]) -> pa.Table:
    opened = pq.ParquetFile(source)
    groups = [opened.read_row_group(number) for number in numbers]
    return pa.concat_tables([opened.schema_arrow.empty_table(), *groups])


def test_a_file_of_all_row_groups_is_read_as_the_file(source: Path) -> None:
    numbers = list(range(pq.ParquetFile(source).num_row_groups))
    assert pq.read_table(io.BytesIO(joined(source, numbers))).equals(pq.read_table(source))


@law_on_disk
@given(data=st.data())
def test_any_row_groups_in_any_order_are_read_as_they_were(
    source: Path, data: st.DataObject
) -> None:
    most = pq.ParquetFile(source).num_row_groups - 1
    numbers = data.draw(st.lists(st.integers(0, most), max_size=6))
    content = joined(source, numbers)
    opened = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
    assert opened.read().equals(expected(source, numbers))
    assert opened.metadata.num_rows == expected(source, numbers).num_rows


@pytest.mark.parametrize("bound", [0, 1_000, 4_100, ROWS])
def test_every_reader_finds_the_same_rows_by_statistics_indexes_and_filters(
    source: Path, tmp_path: Path, bound: int
) -> None:
    numbers = list(range(pq.ParquetFile(source).num_row_groups))[::-1]
    path = tmp_path / "joined.parquet"
    path.write_bytes(joined(source, numbers))
    seqs = [seq for seq in expected(source, numbers)["seq"].to_pylist() if seq >= bound]
    frame = pl.scan_parquet(path).filter(pl.col("seq") >= bound).select("seq")
    assert frame.collect()["seq"].to_list() == seqs
    by_arrow = ds.dataset(path).to_table(columns=["seq"], filter=ds.field("seq") >= bound)
    assert sorted(by_arrow["seq"].to_pylist()) == sorted(seqs)
    with duckdb.connect() as connection:
        query = f"SELECT seq FROM '{path}' WHERE seq {{}} {bound}"  # noqa: S608
        assert sorted(connection.execute(query.format(">=")).fetchall()) == sorted(
            (seq,) for seq in seqs
        )
        assert connection.execute(query.format("=")).fetchall() == (
            [(bound,)] if bound < ROWS else []
        )


@pytest.mark.spark
def test_spark_reads_row_groups_as_they_were(
    source: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """Its vectorised reader skips pages by column and offset indexes."""
    numbers = list(range(pq.ParquetFile(source).num_row_groups))[::-1]
    path = tmp_path / "joined.parquet"
    path.write_bytes(joined(source, numbers))
    frame = spark.read.parquet(str(path))
    for condition in ("seq >= 0", "seq > 4100 and seq < 4200", "subject = 's.3' and seq < 900"):
        rows = frame.where(condition).select("seq", "subject", "payload", "list")
        found = sorted(
            (row.seq, row.subject, bytes(row.payload), row.list) for row in rows.collect()
        )
        with duckdb.connect() as connection:
            query = f"SELECT seq, subject, payload, list FROM '{source}' WHERE {condition}"  # noqa: S608
            assert found == sorted(connection.execute(query).fetchall())


@pytest.mark.spark
def test_a_file_of_spark_is_joined_with_its_indexes_and_filters(
    spark: SparkSession, tmp_path: Path
) -> None:
    written = tmp_path / "spark"
    frame = spark.range(0, 20_000, 1, 1).selectExpr("id AS seq", "concat('s.', id % 7) AS subject")
    options: dict[str, str | int] = {
        "parquet.block.size": 16_384,
        "parquet.page.size": 4_096,
        "parquet.bloom.filter.enabled#seq": "true",
        "parquet.bloom.filter.expected.ndv#seq": 5_000,
        "parquet.block.row.check.min": 100,
    }
    frame.write.options(**options).parquet(str(written))
    [source] = written.glob("*.parquet")
    numbers = list(range(pq.ParquetFile(source).num_row_groups))[::-1]
    with pa.OSFile(str(source), "rb") as content:
        footer = read_footer(content)
        chunk = chunks_of(footer.groups[0])[0]
        assert OfColumn.BLOOM_OFFSET in chunk[OfChunk.METADATA].value
        assert OfChunk.OFFSET_INDEX_OFFSET in chunk
        for number in numbers:
            check_group(load_group(content, footer, number))
    assert len(numbers) > 1
    path = tmp_path / "joined.parquet"
    path.write_bytes(joined(source, numbers))
    assert pq.read_table(path).equals(expected(source, numbers))
    for seq in (0, 77, 9_999, 19_999, 20_000):
        found = [
            row.subject for row in spark.read.parquet(str(path)).where(f"seq = {seq}").collect()
        ]
        assert found == ([f"s.{seq % 7}"] if seq < 20_000 else [])


@pytest.fixture
def checked(tmp_path: Path) -> Path:
    path = tmp_path / "checked.parquet"
    _arrow(compression="zstd")(path)
    return path


def test_pages_with_their_checksums_pass(checked: Path) -> None:
    with pa.OSFile(str(checked), "rb") as content:
        footer = read_footer(content)
        for number in range(GROUPS):
            check_group(load_group(content, footer, number))


def test_pages_without_checksums_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "unchecked.parquet"
    pq.write_table(TABLE, path, write_page_checksum=False)
    with pa.OSFile(str(path), "rb") as content, pytest.raises(UnknownLayoutError, match="header"):
        check_group(load_group(content, read_footer(content), 0))


def bodies(content: bytes) -> list[tuple[int, int]]:
    """The begin and end of the content of every page of a file."""
    found = []
    with pa.BufferReader(content) as source:
        footer = read_footer(source)
        for chunk in load_group(source, footer, 0).chunks:
            at = chunk.begin
            while at < chunk.begin + len(chunk.pages):
                header, begin = read_struct(content, at)
                at = begin + header[3].value
                found.append((begin, at))
    return found


@law_on_disk
@given(data=st.data())
def test_a_changed_byte_of_any_page_is_noticed(
    data: st.DataObject,
) -> None:
    sink = io.BytesIO()
    small = TABLE.slice(0, 200).select(["seq", "subject", "payload"])
    pq.write_table(small, sink, write_page_checksum=True)
    content = bytearray(sink.getvalue())
    begin, end = data.draw(st.sampled_from(bodies(bytes(content))))
    content[data.draw(st.integers(begin, end - 1))] ^= data.draw(st.integers(1, 255))
    with pa.BufferReader(bytes(content)) as damaged:
        group = load_group(damaged, read_footer(damaged), 0)
    with pytest.raises(UnknownLayoutError, match="checksum"):
        check_group(group)


@law_on_disk
@given(data=st.data())
def test_a_damaged_footer_is_refused_or_describes_bytes_of_the_file(
    data: st.DataObject,
) -> None:
    sink = io.BytesIO()
    pq.write_table(TABLE.slice(0, 50), sink, write_page_index=True, row_group_size=20)
    content = bytearray(sink.getvalue())
    with pa.BufferReader(bytes(content)) as intact:
        begin = read_footer(intact).begin
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(begin, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pa.BufferReader(bytes(content)) as damaged:
        try:
            footer = read_footer(damaged)
            groups = [load_group(damaged, footer, n) for n in range(len(footer.groups))]
            file = JoinedFile(io.BytesIO())
            for group in groups:
                file.add(group)
        except UnknownLayoutError:
            return
    assert all(chunk.begin + len(chunk.pages) <= len(content) for g in groups for chunk in g.chunks)


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"PAR1" * 3, b"\0" * 12, b"PAR1\xff\xff\xff\x7fPAR1", b"PAR1\0\0\0\0PAR1"],
)
def test_other_bytes_are_no_footer(content: bytes) -> None:
    with pa.BufferReader(content) as source, pytest.raises(UnknownLayoutError):
        read_footer(source)


def test_an_encrypted_footer_and_a_column_in_another_file_are_refused(checked: Path) -> None:
    metadata = pq.read_metadata(checked)
    metadata.set_file_path("elsewhere.parquet")
    metadata.write_metadata_file(checked.with_name("_metadata"))
    with (
        pa.OSFile(str(checked.with_name("_metadata")), "rb") as source,
        pytest.raises(UnknownLayoutError, match="field 1"),
    ):
        read_footer(source)
