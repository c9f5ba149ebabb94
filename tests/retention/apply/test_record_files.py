"""Records of runs are written and read in pieces, including single-batch records of earlier versions."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from retention.apply import record_files
from retention.apply.record_files import content_of, verified
from retention.errors import DamagedError
from retention.storage import files

SCHEMA = pa.schema([pa.field("seq", pa.int64(), nullable=False)])
ROWS = pa.table([list(range(10))], schema=SCHEMA)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "AT_A_TIME", 3)


def fine(table: pa.Table) -> None:
    assert table.num_rows <= 3


def read(place: Path) -> list[int]:
    record = verified(str(place), "run", fine)
    assert record is not None
    pieces = [table["seq"].to_pylist() for table in record.tables()]
    assert max(map(len, pieces)) <= 3
    return [seq for piece in pieces for seq in piece]


def test_a_record_is_cut_as_it_is_written(tmp_path: Path) -> None:
    files.replace_all(str(tmp_path), {"record": content_of(SCHEMA, [ROWS, ROWS.slice(4)])})
    content = (tmp_path / "record").read_bytes()
    with pa.ipc.open_file(pa.BufferReader(content[:-32])) as reader:
        batches = [reader.get_batch(at).num_rows for at in range(reader.num_record_batches)]
    assert batches == [3, 3, 3, 1, 3, 3]
    assert read(tmp_path / "record") == [*range(10), *range(4, 10)]


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_one_batch_of_an_earlier_version_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(record_files, "_MOST_OF_BATCH", most)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(ROWS)
    table = sink.getvalue().to_pybytes()
    (tmp_path / "record").write_bytes(table + hashlib.sha256(table).digest())
    assert read(tmp_path / "record") == list(range(10))


@pytest.mark.parametrize("content", [b"", b"short", bytes(100)])
def test_what_has_another_digest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "record").write_bytes(content)
    with pytest.raises(DamagedError, match="is damaged"):
        verified(str(tmp_path / "record"), "run", fine)


def test_what_is_no_table_is_refused_although_its_digest_fits(tmp_path: Path) -> None:
    (tmp_path / "record").write_bytes(b"no table" + hashlib.sha256(b"no table").digest())
    with pytest.raises(DamagedError, match="is not what a run writes"):
        verified(str(tmp_path / "record"), "run", fine)


def test_a_record_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert verified(str(tmp_path / "record"), "run", fine) is None


def test_only_a_record_of_few_rows_is_not_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "AT_A_TIME", 1_000)
    same = pa.table([[7] * 257], schema=SCHEMA)
    lengths = [
        sum(map(len, content_of(SCHEMA, tables)))
        for tables in ([same.slice(1)], [same], [same.slice(1), same.slice(256)])
    ]
    assert lengths[0] > 256 * 8
    assert max(lengths[1:]) < 256 * 8
