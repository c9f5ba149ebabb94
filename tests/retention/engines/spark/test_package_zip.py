from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from retention.engines.spark.package_zip import PACKAGE, pack_zip
from retention.errors import UsageError

ROOT = Path(__file__).parents[4]


def test_the_zip_has_every_file_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "package.zip"
    assert pack_zip(target) == target.stat().st_size
    with zipfile.ZipFile(target) as archive:
        names = archive.namelist()
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", PACKAGE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(names) == sorted(tracked.stdout.splitlines())
    assert [path.name for path in tmp_path.iterdir()] == ["package.zip"]
    before = target.read_bytes()
    pack_zip(target)
    assert target.read_bytes() == before


def test_jobs_start_from_the_zip_alone(tmp_path: Path) -> None:
    pack_zip(tmp_path / "package.zip")
    done = subprocess.run(
        [sys.executable, "-m", "retention.jobs.retain", "--engine", "local", "--stream", "NONE"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "package.zip")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "retention.yaml" in done.stderr


@pytest.mark.parametrize(
    ("name", "text"), [("package.tar", "ends in .zip"), ("none/package.zip", "make it first")]
)
def test_a_target_that_cannot_be_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        pack_zip(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
