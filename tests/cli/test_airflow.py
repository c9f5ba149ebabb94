"""The package of DAGs is written without a clone, and overwrites only its own files."""

from __future__ import annotations

import json
from pathlib import Path

from retention.cli.airflow import dags
from tests.support.command_line import invoke


def test_the_dags_are_copied_whole_and_again(tmp_path: Path) -> None:
    for form in (["--format", "json"], ["--format", "json"]):
        done = invoke([*form, "airflow", "--copy-to", str(tmp_path)])
        assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert Path(said["pools"]).read_bytes() == (dags() / "pools.json").read_bytes()
    there = {path.name for path in (tmp_path / "airflow_dags").iterdir()}
    assert there == {path.name for path in dags().iterdir()} - {"__pycache__"}
    assert sorted(there) == said["files"]


def test_nothing_is_written_over_the_files_of_others(tmp_path: Path) -> None:
    place = tmp_path / "airflow_dags"
    place.mkdir()
    (place / "mine.py").write_text("x = 1\n")
    done = invoke(["airflow", "--copy-to", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"{place} has mine.py, which is not a file of this package; ")
    assert [path.name for path in place.iterdir()] == ["mine.py"]


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = invoke(["airflow", "--copy-to", str(tmp_path / "dags")])
    assert done.exit_code == 2
    assert "not a directory; nothing was written" in done.stderr
    assert not list(tmp_path.iterdir())
