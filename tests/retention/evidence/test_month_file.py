"""A file of evidence: small, read only if relevant, and refused if its content differs from what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from retention.errors import DamagedError
from retention.evidence import month_file
from retention.evidence.month_file import MonthFile, write_month_file
from retention.schemas.evidence import EVIDENCE
from tests.support.evidence import run_name, scattered, whole_files

RUNS = [run_name(number) for number in range(5)]


def written(folder: Path, *tables: pa.Table) -> MonthFile:
    place = write_month_file(str(folder), "2026-11", tables)
    assert place is not None
    return MonthFile(place)


def some() -> list[pa.Table]:
    """Five runs, each with ten single messages of a thousand sequences of its own, three apart."""
    return [scattered(run, at * 1000 + 3 * np.arange(1, 11)) for at, run in enumerate(RUNS)]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, *some())
    assert (
        pa.concat_tables(file.tables()).equals(pa.concat_tables(some()).select(EVIDENCE.names))
        is False
    )
    assert [rows["run"].unique().to_pylist() for rows in file.of_run(RUNS[3])] == [[RUNS[3]]]
    assert list(file.of_run(run_name(99))) == []
    [hit] = file.covering(0, 2003)
    assert (hit["run"].to_pylist(), hit["first_seq"].to_pylist()) == ([RUNS[2]], [2003])
    assert list(file.covering(0, 2004)) == []
    assert list(file.covering(1, 2003)) == []


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    assert write_month_file(str(tmp_path), "2026-11", [EVIDENCE.empty_table()]) is None
    assert list(tmp_path.iterdir()) == []


def test_only_row_groups_that_may_answer_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(month_file, "MOST_ROWS", 10)
    file, read = written(tmp_path, *some()), list[int]()
    honest = MonthFile._read

    def watched(self: MonthFile, group: int, columns: list[str]) -> pa.Table:
        read.append(group)
        return honest(self, group, columns)

    monkeypatch.setattr(MonthFile, "_read", watched)
    assert [rows.num_rows for rows in file.of_run(RUNS[3])] == [10]
    assert read == [3]
    assert len(list(file.covering(0, 4003))) == 1
    assert read == [3, 4, 4]
    assert list(file.covering(0, 999_999)) == []
    assert read == [3, 4, 4]


def test_a_row_with_many_exceptions_stands_in_a_group_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(month_file, "_MOST_EXCEPTED", 3)
    many = whole_files(RUNS[0], np.array([100]))
    at = EVIDENCE.names.index("except_firsts")
    for column in (at, at + 1):
        many = many.set_column(
            column, EVIDENCE.field(column), pa.array([[5, 7, 9]], pa.list_(pa.int64()))
        )
    file = written(tmp_path, many, many, many)
    assert [table.num_rows for table in file.tables()] == [1, 1, 1]


@pytest.mark.parametrize("gap", [10, 1000, 100_000])
def test_a_scattered_message_takes_at_most_8_bytes(tmp_path: Path, gap: int) -> None:
    seqs = np.cumsum(np.random.default_rng(gap).integers(1, 2 * gap, 100_000))
    tables = [
        scattered(run, part, files=30) for run, part in zip(RUNS, np.split(seqs, 5), strict=True)
    ]
    assert Path(written(tmp_path, *tables).location).stat().st_size <= 8 * len(seqs)


def test_a_whole_file_takes_at_most_64_bytes(tmp_path: Path) -> None:
    spans = np.random.default_rng(1).integers(5_000, 200_000, 10_000)
    place = written(tmp_path, whole_files(RUNS[0], spans)).location
    assert Path(place).stat().st_size <= 64 * len(spans)


def test_what_is_altered_is_refused_or_reads_as_it_was(tmp_path: Path) -> None:
    place = Path(written(tmp_path, *some()).location)
    honest, wanted = place.read_bytes(), pa.concat_tables(MonthFile(str(place)).tables())
    refused = 0
    for at in range(4, len(honest), 31):
        place.write_bytes(honest[:at] + bytes([honest[at] ^ 1]) + honest[at + 1 :])
        try:
            assert pa.concat_tables(MonthFile(str(place)).tables()).equals(wanted)
        except DamagedError:
            refused += 1
    assert refused > len(honest) / 31 / 2


@pytest.mark.parametrize("length", [0, 3, 12, 500])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, length: int) -> None:
    place = Path(written(tmp_path, *some()).location)
    place.write_bytes(place.read_bytes()[:length])
    with pytest.raises(DamagedError, match="file of evidence"):
        list(MonthFile(str(place)).tables())


def test_a_file_that_a_fold_has_replaced_is_named_as_gone(tmp_path: Path) -> None:
    file = written(tmp_path, *some())
    Path(file.location).unlink()
    with pytest.raises(FileNotFoundError):
        list(file.tables())
