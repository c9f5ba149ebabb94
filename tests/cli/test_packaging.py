from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import invoke


def test_a_package_is_written_and_its_use_is_said(tmp_path: Path) -> None:
    file = tmp_path / "p.zip"
    done = invoke(["package", "--py-files", str(file)])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1] == f"  spark-submit --py-files {file} …"
    done = invoke(["--format", "json", "package", "--py-files", str(file)])
    assert json.loads(done.stdout)["bytes"] == file.stat().st_size


def test_one_of_two_ways_is_to_be_given(tmp_path: Path) -> None:
    both = ("--py-files", str(tmp_path / "p.zip"), "--venv", str(tmp_path / "v.tar.gz"))
    for options in ((), both):
        done = invoke(["package", *options])
        assert done.exit_code == 2
        assert "give one of two" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_spark_would_not_unpack_is_refused(tmp_path: Path) -> None:
    done = invoke(["package", "--venv", str(tmp_path / "v.zst")])
    assert done.exit_code == 2
    assert ".tar.gz or .tgz" in done.stderr
