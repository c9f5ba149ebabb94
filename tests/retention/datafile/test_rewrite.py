from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.core.inventory import DataFile
from retention.core.message_rows import complete_rows
from retention.core.seq_ranges import in_ranges
from retention.datafile import deadline_writer, parquet, rewrite
from retention.datafile.rewrite import RewriteTask, copy_remaining
from retention.errors import DamagedError
from retention.schemas.files import FILE_STATS, FileStats


def file_at(folder: Path, name: str) -> DataFile:
    return DataFile(f"{name}.parquet", 0, 1, str(folder / name), str(folder / f"{name}.digest"))


def messages(first: int, last: int) -> pa.Table:
    seqs = list(range(first, last + 1))
    raw = pa.table(
        {
            "seq": pa.array(seqs, pa.int64()),
            "subject": [f"s.{seq % 3}" for seq in seqs],
            "headers": pa.nulls(len(seqs), pa.binary()),
            "payload": pa.array([b"x"] * len(seqs), pa.binary()),
            "ts_ns": pa.array(seqs, pa.int64()),
        }
    )
    return complete_rows(raw, "file")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataFile:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
    file = file_at(tmp_path, "source")
    parquet.write_messages(file.location, [messages(1, 40)])
    return file


def copied(source: DataFile, *removed: tuple[int, int]) -> tuple[list[int], int]:
    """The sequences of a copy, and the bytes read from the source and the copy."""
    target = file_at(Path(source.location).parent, "target")
    ranges = np.array(removed, dtype=np.int64).reshape(-1, 2)
    description = copy_remaining(RewriteTask(source, (target,), ranges))
    return pq.read_table(target.location)["seq"].to_pylist(), description.read.bytes


def test_a_copy_has_every_row_but_the_removed_ones(source: DataFile) -> None:
    seqs, _ = copied(source, (3, 5), (11, 11), (38, 40))
    assert seqs == [seq for seq in range(1, 38) if seq not in (3, 4, 5, 11)]


def test_a_row_group_that_goes_whole_is_not_read(source: DataFile) -> None:
    most_of_it, cost_of_most = copied(source, (1, 29))
    whole_groups, cost_of_whole = copied(source, (1, 30))
    assert (len(most_of_it), len(whole_groups)) == (11, 10)
    assert cost_of_whole < cost_of_most


def test_two_ranges_that_meet_inside_a_row_group_still_take_it_whole(source: DataFile) -> None:
    seqs, _ = copied(source, (1, 5), (6, 10))
    assert seqs == list(range(11, 41))


def test_a_file_is_described_by_each_of_its_statistics(source: DataFile) -> None:
    described = parquet.describe(source).stats
    assert sorted(described) == sorted(get_type_hints(FileStats)) == sorted(FILE_STATS.names)


def test_a_damaged_source_is_named(source: DataFile) -> None:
    content = bytearray(Path(source.location).read_bytes())
    content[len(content) // 3] ^= 0xFF
    Path(source.location).write_bytes(bytes(content))
    with pytest.raises(DamagedError, match="source"):
        copied(source, (1, 5))


def test_ranges_are_inclusive_at_both_ends() -> None:
    mask = in_ranges(np.array([1, 2, 3, 4, 5, 9]), np.array([[2, 3], [9, 9]]))
    assert mask.tolist() == [False, True, True, False, False, True]


def test_files_whose_writer_chose_other_arrow_types_for_text_and_bytes_are_copied(
    tmp_path: Path,
) -> None:
    """deltalake's own DELETE and OPTIMIZE write views."""
    for text, octets in (
        (pa.string_view(), pa.binary_view()),
        (pa.large_string(), pa.large_binary()),
    ):
        file = file_at(tmp_path, f"{text}")
        rows, kinds = messages(1, 9), {pa.string(): text, pa.binary(): octets}
        fields = [field.with_type(kinds.get(field.type, field.type)) for field in rows.schema]
        pq.write_table(rows.cast(pa.schema(fields)), file.location)
        assert copied(file, (3, 5))[0] == [1, 2, 6, 7, 8, 9]


def test_a_copy_holds_little_at_a_time_however_large_messages_are(
    source: DataFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "DECODED_BYTES", 400)
    monkeypatch.setattr(deadline_writer, "BUFFER_BYTES", 400)
    monkeypatch.setattr(deadline_writer, "BUFFER_BYTES", 400)
    seqs, _ = copied(source, (3, 5))
    assert seqs == [seq for seq in range(1, 41) if seq not in (3, 4, 5)]
    written = pq.ParquetFile(Path(source.location).parent / "target").metadata
    rows = [written.row_group(number).num_rows for number in range(written.num_row_groups)]
    assert max(rows) <= 10
    assert len(rows) > 4
