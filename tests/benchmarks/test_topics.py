from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.iggy_logs import measure, write_log
from benchmarks.topics import file_deletes, instant_of, ours, partition_deletes, quiet
from retention.formats.iggy.era import EraName
from retention.formats.iggy.log import SegmentLog, read_log
from retention.formats.iggy.topic import ERAS


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_every_run_drops_its_part(tmp_path: Path, format_: str) -> None:
    assert len(list(ours(tmp_path / "ours", format_, 16, 2))) == 2
    assert len(quiet(tmp_path / "ours", instant_of(2), 3)) == 3


def test_the_others_drop_as_much(tmp_path: Path) -> None:
    assert len(list(partition_deletes(tmp_path / "delta-rs", 16, 2))) == 2
    files = sorted((tmp_path / "delta-rs").rglob("_delta_log/*.json"))
    assert "segment < 2000" in files[-1].read_text()
    assert len(list(file_deletes(tmp_path / "files", 16, 2))) == 2
    assert list((tmp_path / "files").iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("era", ["0.8", "0.9"])
def test_logs_of_both_eras_are_imported_whole(
    tmp_path: Path, era: EraName, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "one.log"
    write_log(log, era, 1 << 20)
    read = list(read_log(SegmentLog(str(log), 0, 0, log.stat().st_size, None), ERAS[era]))
    assert [part.findings for part in read] == [()]
    assert read[0].rows.num_rows == read[0].next_offset >= 7_000
    measure(tmp_path / "measured", era, 1, 1)
    imported, copied = capsys.readouterr().out.splitlines()
    assert imported.startswith(f"| {era} | import | ")
    assert copied.startswith(f"| {era} | copying the bytes | ")
