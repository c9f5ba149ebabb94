from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.inventory import DataFile
from retention.datafile import copied_groups, deadline_writer, merge, parquet
from retention.datafile.merge import MergeResult, MergeTask, merge_files
from retention.datafile.row_groups import rows_of_group
from retention.errors import VerificationError
from retention.schemas.messages import FILE_COLUMNS
from tests.retention.datafile.test_copied_groups import chunks, file_at, messages
from tests.support.laws import law_on_disk

GROUP = 40


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parquet, copied_groups, deadline_writer):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", GROUP)
    smallest = 30 * messages(1, 30).nbytes // 40
    monkeypatch.setattr(copied_groups, "LEAST_BYTES", smallest)


def source(folder: Path, first: int, last: int) -> DataFile:
    place = folder / f"{first}-{last}.parquet"
    parquet.write_messages(str(place), [messages(first, last)])
    return file_at(place)


def merged(target: Path, *files: DataFile, count: int) -> MergeResult:
    return merge_files(MergeTask(tuple((file,) for file in files), (file_at(target),), count))


def test_large_row_groups_keep_their_bytes_and_small_ones_are_merged(tmp_path: Path) -> None:
    files = [
        source(tmp_path, first, last)
        for first, last in ((1, 40), (41, 50), (51, 60), (61, 140), (141, 145))
    ]
    target = tmp_path / "target"
    result = merged(target, *files, count=145)
    assert [row["messages"] for row in result.stats] == [145]
    written = pq.ParquetFile(target)
    assert written.read().equals(messages(1, 145))
    sizes = [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)]
    assert sizes == [40, 20, 40, 40, 5]
    for file, before, after in ((0, 0, 0), (3, 0, 2), (3, 1, 3)):
        assert chunks(files[file].location, before) == chunks(target, after)


@law_on_disk
@given(edges=st.sets(st.integers(2, 200), min_size=1, max_size=8), data=st.data())
def test_a_merge_with_copied_row_groups_equals_one_that_decodes_all(
    edges: set[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    begins = sorted({1} | edges)
    files = [
        source(folder, first, after - 1)
        for first, after in zip(begins, [*begins[1:], 201], strict=True)
        if first < after
    ]
    spans, at = [], 0
    while at < len(files):
        count = data.draw(st.integers(1, 3))
        spans.append(tuple(files[at : at + count]))
        at += count
    by_bytes = merge_files(MergeTask(tuple(spans), (file_at(folder / "bytes"),), 200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copied_groups, "LEAST_BYTES", 1 << 60)
        decoded = merge_files(MergeTask(tuple(spans), (file_at(folder / "decoded"),), 200))
    assert pq.read_table(folder / "bytes").equals(pq.read_table(folder / "decoded"))
    assert by_bytes.stats[0]["bytes"] == decoded.stats[0]["bytes"]


def test_a_copied_row_group_that_reads_back_differently_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [source(tmp_path, 1, 40), source(tmp_path, 41, 50)]
    monkeypatch.setattr(merge, "digests_of_groups", lambda *_: {0: "another"})
    with pytest.raises(VerificationError, match="read back as 10-"):
        merged(tmp_path / "target", *files, count=50)


def test_rows_beside_a_copied_row_group_that_read_back_differently_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [source(tmp_path, 1, 40), source(tmp_path, 41, 50)]

    def with_other_payloads(file: DataFile, *others: object) -> object:
        rows = rows_of_group(file, *others)  # type: ignore[arg-type]
        at = FILE_COLUMNS.get_field_index("payload")
        other = rows["payload"].take(np.arange(rows.num_rows)[::-1])
        return rows.set_column(at, FILE_COLUMNS.field("payload"), other)

    monkeypatch.setattr(merge, "rows_of_group", with_other_payloads)
    with pytest.raises(VerificationError, match="nothing was committed"):
        merged(tmp_path / "target", *files, count=50)
