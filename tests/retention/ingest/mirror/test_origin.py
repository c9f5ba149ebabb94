from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.core.inventory import DataFile
from retention.core.message_rows import complete_rows
from retention.datafile.parquet import write_messages
from retention.errors import DamagedError
from retention.ingest.mirror import origin
from retention.ingest.mirror.origin import filtered_rows

COLUMNS = ("seq", "subject", "payload")


def file_of(folder: Path, *groups: Sequence[int], payload: bytes = b"x") -> DataFile:
    """A file with a row group for each list of sequences; even ones have subject a, odd ones b."""
    location = str(folder / "f.parquet")
    write_messages(location, [rows_of(seqs, payload) for seqs in groups])
    return DataFile("f.parquet", 0, 1, location, f"{location}.arrow")


def rows_of(seqs: Sequence[int], payload: bytes) -> pa.Table:
    raw = {
        "seq": pa.array(seqs, pa.int64()),
        "subject": ["ab"[seq % 2] for seq in seqs],
        "ts_ns": pa.array([0] * len(seqs), pa.int64()),
        "headers": pa.nulls(len(seqs), pa.binary()),
        "payload": pa.array([payload] * len(seqs), pa.binary()),
    }
    return complete_rows(pa.table(raw), "file")


def of_a(table: pa.Table) -> np.ndarray:
    return np.array([subject == "a" for subject in table["subject"].to_pylist()], dtype=bool)


def found(file: DataFile) -> list[int]:
    return [seq for table in filtered_rows(file, COLUMNS, of_a) for seq in table["seq"].to_pylist()]


def test_wanted_rows_come_in_order_with_the_columns_asked_for(tmp_path: Path) -> None:
    tables = list(filtered_rows(file_of(tmp_path, [1, 2, 4], [5, 6, 7]), COLUMNS, of_a))
    assert [table["seq"].to_pylist() for table in tables] == [[2, 4], [6]]
    assert {tuple(table.column_names) for table in tables} == {COLUMNS}


@pytest.mark.parametrize("groups", [([4, 2, 8],), ([6, 8], [2, 3])])
def test_rows_out_of_order_are_put_in_order(
    tmp_path: Path, groups: tuple[Sequence[int], ...]
) -> None:
    assert found(file_of(tmp_path, *groups)) == sorted(
        seq for group in groups for seq in group if seq % 2 == 0
    )


def test_payloads_are_read_only_where_something_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(tmp_path, [1, 3], [4, 5], [7, 9], [11])
    read: list[list[int]] = []
    real = pq.ParquetFile.iter_batches

    def noted(
        self: pq.ParquetFile, *args: object, row_groups: list[int], **named: object
    ) -> object:
        read.append(row_groups)
        return real(self, *args, row_groups=row_groups, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert found(file) == [4]
    assert read == [[1]]


def test_large_payloads_come_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "BUFFER_BYTES", 50_000)
    payload = np.random.default_rng(1).bytes(10_000)
    file = file_of(tmp_path, range(2, 82, 2), payload=payload)
    sizes = [table.num_rows for table in filtered_rows(file, COLUMNS, of_a)]
    assert sum(sizes) == 40
    assert len(sizes) > 1


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = file_of(tmp_path, range(2, 2000), payload=b"y" * 50)
    content = bytearray(Path(file.location).read_bytes())
    content[len(content) // 2 - 4000 : len(content) // 2] = bytes(4000)
    Path(file.location).write_bytes(content)
    with pytest.raises(DamagedError, match=r"f\.parquet"):
        found(file)
