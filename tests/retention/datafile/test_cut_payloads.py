from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.inventory import DataFile
from retention.core.seq_ranges import in_ranges
from retention.datafile import (
    copied_groups,
    copied_payloads,
    cut_payloads,
    deadline_writer,
    parquet,
    rewrite,
)
from retention.datafile.copied_payloads import PAYLOAD
from retention.datafile.cut_payloads import load_cut, may_be_cut
from retention.datafile.parquet import open_messages
from retention.datafile.rewrite import RewriteTask, copy_remaining
from retention.datafile.subject_digest import digest_at
from retention.errors import DamagedError
from retention.storage.row_groups import cut_pages
from tests.retention.datafile.test_copied_groups import file_at, messages
from tests.support.laws import law_on_disk
from tests.support.other_readers import payloads_by_others

MESSAGES, GROUP = 240, 60
ROWS = messages(1, MESSAGES)
SCATTERED = np.array([[2, 2], [5, 9], [61, 100], [233, 233]], np.int64)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (parquet, copied_groups, deadline_writer):
        monkeypatch.setattr(owner, "ROW_GROUP_ROWS", GROUP)
    monkeypatch.setattr(copied_groups, "LEAST_BYTES", 0)
    monkeypatch.setattr(copied_payloads, "LEAST_PAYLOAD_BYTES", 0)
    monkeypatch.setattr(cut_payloads, "VALUE_BYTES", 0)
    monkeypatch.setattr(cut_payloads, "RUN_BYTES", 0)
    monkeypatch.setattr(cut_pages, "PAGE_BYTES", 500)


def source(place: Path, rows: pa.Table = ROWS) -> DataFile:
    parquet.write_messages(str(place), [rows])
    return file_at(place)


def remaining(gone: np.ndarray, rows: pa.Table = ROWS) -> pa.Table:
    return rows.filter(pa.array(~in_ranges(rows["seq"].to_numpy(), gone)))


def rewritten(file: DataFile, target: Path, gone: np.ndarray) -> pa.Table:
    copy_remaining(RewriteTask(file, (file_at(target),), gone))
    return pq.read_table(target, page_checksum_verification=True)


@pytest.fixture
def never_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object, groups: list[int]) -> Iterator[pa.RecordBatch]:
        assert not groups, "payloads are decoded"
        return iter(())

    monkeypatch.setattr(rewrite, "_batches", fail)


@pytest.mark.usefixtures("never_decoded")
def test_payloads_are_cut_without_decoding_them(tmp_path: Path) -> None:
    written = rewritten(source(tmp_path / "source"), tmp_path / "target", SCATTERED)
    assert written.equals(remaining(SCATTERED))
    metadata = pq.read_metadata(tmp_path / "target")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [54, 20, 60, 59]
    assert [group.column(PAYLOAD).num_values for group in groups] == [54, 20, 60, 59]
    assert all(
        group.total_byte_size
        == sum(group.column(at).total_uncompressed_size for at in range(group.num_columns))
        for group in groups
    )


@law_on_disk
@given(
    gone=st.sets(st.integers(1, MESSAGES), max_size=MESSAGES - 1),
    least=st.sampled_from((0, 4_000)),
    wrong=st.sampled_from(((0, 0), (7, 0), (0, 3))),
)
def test_a_cut_file_equals_its_filtered_rows(
    gone: set[int], least: int, wrong: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    seqs = np.array(sorted(gone), np.int64).reshape(-1, 1)
    sizes = ROWS["size"].to_numpy() + wrong[0] + wrong[1] * (ROWS["seq"].to_numpy() % 5)
    rows = ROWS.set_column(ROWS.column_names.index("size"), "size", pa.array(sizes)).cast(
        ROWS.schema
    )
    ranges = np.hstack([seqs, seqs])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copied_groups, "LEAST_BYTES", least)
        written = rewritten(source(folder / "source", rows), folder / "target", ranges)
    assert written.equals(remaining(ranges, rows))


def test_every_reader_finds_the_remaining_payloads(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    target = table / "target.parquet"
    rewritten(source(tmp_path / "source"), target, SCATTERED)
    wanted = remaining(SCATTERED)["payload"].to_pylist()
    for payloads in payloads_by_others(target):
        assert payloads == wanted


def written(**settings: object) -> Callable[[Path], None]:
    options = {"write_page_checksum": True, "compression": "zstd", "use_dictionary": ["subject"]}

    def write(place: Path) -> None:
        pq.write_table(ROWS.slice(0, GROUP), place, **(options | settings))

    return write


NOT_CUT = {
    "no checksums": written(write_page_checksum=False),
    "another codec": written(compression="snappy"),
    "a dictionary": written(use_dictionary=True),
    "pages of version 2": written(data_page_version="2.0"),
}


@pytest.mark.parametrize("kind", NOT_CUT)
def test_other_pages_are_decoded(kind: str, tmp_path: Path) -> None:
    NOT_CUT[kind](tmp_path / "file")
    file = file_at(tmp_path / "file")
    opened = open_messages(file)
    assert (
        not may_be_cut(opened.metadata.row_group(0))
        or load_cut(file, opened, 0, SCATTERED, 0) is None
    )
    rows = rewritten(file, tmp_path / "target", SCATTERED)
    assert rows.equals(remaining(SCATTERED, ROWS.slice(0, GROUP)))


@pytest.mark.parametrize(("bound", "share"), [("RUN_BYTES", 2), ("VALUE_BYTES", 59)])
def test_short_payloads_are_decoded(
    bound: str, share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = source(tmp_path / "file")
    group = open_messages(file).metadata.row_group(0)
    payload_bytes = group.column(PAYLOAD).total_uncompressed_size * 59 // 60
    one_gone = np.array([[30, 30]], np.int64)
    for nbytes, is_cut in ((payload_bytes // share, True), (payload_bytes // share + 1, False)):
        monkeypatch.setattr(cut_payloads, bound, nbytes)
        assert (load_cut(file, open_messages(file), 0, one_gone, 0) is not None) == is_cut


def test_nothing_is_read_of_payloads_that_are_short_by_the_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_payloads, "VALUE_BYTES", 1 << 20)
    monkeypatch.setattr(cut_payloads, "stored_rows", Mock(side_effect=AssertionError))
    rows = rewritten(source(tmp_path / "source"), tmp_path / "target", SCATTERED)
    assert rows.equals(remaining(SCATTERED))


def test_few_remaining_rows_are_merged_with_their_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = source(tmp_path / "file")
    large = pq.read_metadata(file.location).row_group(0).total_byte_size
    monkeypatch.setattr(copied_groups, "LEAST_BYTES", large * 2 // 3)
    gone = np.array([[11, 60], [71, 120], [124, 124]], np.int64)
    assert rewritten(file, tmp_path / "target", gone).equals(remaining(gone))
    metadata = pq.read_metadata(tmp_path / "target")
    assert [metadata.row_group(number).num_rows for number in range(3)] == [20, 59, 60]


@pytest.mark.usefixtures("never_decoded")
def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    file = source(tmp_path / "damaged")
    content = bytearray(Path(file.location).read_bytes())
    column = pq.read_metadata(file.location).row_group(3).column(PAYLOAD)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    Path(file.location).write_bytes(content)
    with pytest.raises(DamagedError, match=r"damaged: cannot be read .*checksum of a page"):
        rewritten(file, tmp_path / "target", SCATTERED)
    assert not (tmp_path / "target").exists()


def test_hidden_rows_are_left_out(tmp_path: Path) -> None:
    file = replace(source(tmp_path / "source"), hidden=np.array([[1, 3]], np.int64))
    rows = rewritten(file, tmp_path / "target", SCATTERED)
    assert rows["seq"].to_pylist()[:2] == [4, 10]


def test_the_digest_of_the_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    target = tmp_path / "target"
    rewritten(source(tmp_path / "source"), target, SCATTERED)
    record = digest_at(file_at(target).digest_location).load()
    assert record is not None
    assert record.sha256 == hashlib.sha256(target.read_bytes()).hexdigest()
