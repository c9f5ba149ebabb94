from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.topics import file_deletes, ours, partition_deletes


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_every_run_drops_its_part(tmp_path: Path, format_: str) -> None:
    assert len(list(ours(tmp_path / "ours", format_, 16, 2))) == 2


def test_the_others_drop_as_much(tmp_path: Path) -> None:
    assert len(list(partition_deletes(tmp_path / "delta-rs", 16, 2))) == 2
    files = sorted((tmp_path / "delta-rs").rglob("_delta_log/*.json"))
    assert "segment < 2000" in files[-1].read_text()
    assert len(list(file_deletes(tmp_path / "files", 16, 2))) == 2
    assert list((tmp_path / "files").iterdir()) == []
