"""The command `retention-job`, and the scripts of a clone: each job, by its name."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from retention.errors import UsageError
from retention.jobs import main as of_jobs
from retention.jobs import running
from tests.support.jobs import run_job

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("job", of_jobs.JOBS)
def test_a_job_is_the_same_by_each_of_its_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["retention-job", job, "--help"])
    with pytest.raises(SystemExit) as ended:
        of_jobs.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {job} ")
    script = import_module(f"jobs.{job}")
    assert script.main is import_module(f"retention.jobs.{job}").main


def test_there_is_a_script_for_every_job() -> None:
    scripts = {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"__init__"}
    assert scripts == set(of_jobs.JOBS)


def test_an_unknown_job_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["retention-job", "retian"])
    with pytest.raises(SystemExit) as ended:
        of_jobs.main()
    assert ended.value.code == 2
    assert "invalid choice: 'retian'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("job", "words", "engine"),
    [
        ("retain", (), "spark"),
        ("retain", ("--engine", "auto"), "auto"),
        ("reclaim", (), None),
        ("mirror", ("--engine", "local"), "local"),
        ("ingest", ("--stream", "S", "--source", "t"), None),
    ],
)
def test_a_job_opens_its_warehouse_on_the_engine_of_its_arguments(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    job: str,
    words: tuple[str, ...],
    engine: str | None,
) -> None:
    asked: list[object] = []

    def refused(_: str, **settings: object) -> None:
        asked.append(settings["engine"])
        raise UsageError("refused")

    monkeypatch.setattr(running, "open_warehouse", refused)
    assert run_job(job, tmp_path, *words).returncode == UsageError.exit_code
    assert asked == [engine]


def test_a_line_of_an_old_crontab_works_in_a_clone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobs.plan", "--warehouse", str(tmp_path / "none")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("plan: ")
