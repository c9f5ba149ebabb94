"""The installed package: from a wheel or sdist, in an empty environment, without a clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
pytestmark = pytest.mark.skipif(
    "RETENTION_INSTALLED" not in os.environ,
    reason="installs a hundred packages: `make long NAME=installed`",
)


@dataclass(frozen=True)
class Installed:
    """An environment with the package, without access to a clone."""

    venv: Path
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        program = self.venv / "bin" / command[0]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        return subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def answer(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout


def quietly(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    quietly(sys.executable, "-m", "hatchling", "build", "-d", folder)
    return folder


def installed(
    folder: Path, package: Path, extras: str = "", constraints: Sequence[str] = ()
) -> Installed:
    venv = folder / "venv"
    quietly(UV, "venv", "--quiet", "--python", sys.executable, venv)
    install = (UV, "pip", "install", "--quiet", "--python", venv / "bin" / "python")
    wanted = f"lake-retention{extras} @ {package.as_uri()}"
    quietly(*install, wanted, *constraints)
    return Installed(venv, folder)


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_the_first_plan_is_applied_without_a_clone_and_without_spark(
    tmp_path: Path, built: Path, kind: str
) -> None:
    (package,) = built.glob(kind)
    there = installed(tmp_path, package)
    assert there.run("python", "-c", "import pyspark").returncode != 0
    there.answer("retention", "init", "lake")
    planned = json.loads(
        there.answer("retention", "--config", "lake/retention.yaml", "--format", "json", "plan")
    )
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "__init__.py").write_text("raise SystemExit('jobs of a user')")
    (tmp_path / "schemas.py").write_text("raise SystemExit('schemas of a user')")
    options = ("--config", "lake/retention.yaml", "--engine", "auto")
    there.answer("python", "-m", "retention.jobs.plan", *options)
    done = there.answer("retention-job", "retain", *options)
    going = sum(entry["removed_messages"] for entry in planned["streams"])
    assert f" {going:,} messages (" in done


def test_work_that_asks_for_spark_says_how_to_get_it(tmp_path: Path, built: Path) -> None:
    (package,) = built.glob("*.whl")
    there = installed(tmp_path, package)
    there.answer("retention", "init", "lake")
    options = ("--config", "lake/retention.yaml", "--engine", "spark")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.json").write_text('{"subject": "orders.a", "payload": "x"}')
    source = ("--stream", "ORDERS", "--source", "new", "--source-format", "json", "--time", "now")
    done = there.run("python", "-m", "retention.jobs.ingest", *options, *source)
    assert done.returncode == 2
    assert "pip install 'lake-retention[spark]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_the_dags_and_the_build_are_told_without_a_clone(
    tmp_path: Path, built: Path, kind: str
) -> None:
    (package,) = built.glob(kind)
    there = installed(tmp_path, package)
    (tmp_path / "dags").mkdir()
    there.answer("retention", "airflow", "--copy-to", "dags")
    listed = "import os, retention; print(*os.listdir(retention.__path__[0] + '/..'))"
    assert not {"jobs", "schemas", "airflow_dags"} & set(
        there.answer("python", "-c", listed).split()
    )
    copied = {file.name for file in (tmp_path / "dags" / "airflow_dags").iterdir()}
    assert copied >= {file.name for file in (ROOT / "airflow_dags").glob("*.[pj]*")}
    commit = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert commit.stdout.strip() in there.answer("retention", "--version")
