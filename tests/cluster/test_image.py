"""The Dockerfile: its steps executed in a folder (except those that would change this machine), and the result run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from retention.engines.spark.java import machine_java
from tests.support.cluster import until
from tests.support.dockerfile import Image, bare_environment, instructions
from tests.support.sandboxes import lines, opened

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_context_has_what_is_copied_and_little_else() -> None:
    let_in = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [
        words.split()[:-1] for instruction, words in instructions(TEXT) if instruction == "COPY"
    ]
    names = {name for words in copied for name in words}
    assert {line[1:] for line in let_in if line.startswith("!")} == names
    assert all((ROOT / name).exists() for name in names)


def test_the_base_is_a_python_that_the_package_supports() -> None:
    assert ("FROM", "${PYTHON}") in instructions(TEXT)
    [base] = [words[7:] for name, words in instructions(TEXT) if name == "ARG" and words[7:]]
    version = re.fullmatch(r"python:3\.(\d+)-slim-bookworm", base)
    assert version is not None
    assert 11 <= int(version[1]) <= 14


def test_its_packages_are_those_of_the_tests_by_hash() -> None:
    def pinned(name: str) -> dict[str, str]:
        text = (ROOT / name).read_text(encoding="utf-8")
        return dict(re.findall(r"^([\w-]+)(?:\[.*\])?==(\S+)", text, re.MULTILINE))

    tested, installed = pinned("requirements.lock"), pinned("requirements-image.lock")
    assert {"pyspark", "deltalake", "grpcio", "openlineage-python"} <= set(installed)
    assert "pytest" not in installed
    assert {name: tested[name] for name in installed} == installed
    [uv] = re.findall(r"\buv==(\S+)", TEXT)
    assert tested["uv"] == uv
    assert "--require-hashes" in TEXT


def test_it_runs_as_a_user_without_rights_and_copies_sources_last() -> None:
    named = [f"{name} {words}" for name, words in instructions(TEXT)]
    user = named.index("USER 1000")
    assert not [step for step in named[user:] if step.startswith("RUN")]
    dependencies = next(at for at, step in enumerate(named) if "--require-hashes" in step)
    assert dependencies < named.index("COPY retention retention")


@pytest.mark.cluster
def test_the_steps_make_a_driver_and_an_executor(tmp_path: Path) -> None:
    image = Image(ROOT, tmp_path, bare_environment())
    image.build(TEXT.replace("ENV UV_NO_CACHE=1\n", ""))
    [installed] = image.not_done
    assert "openjdk-17-jre-headless" in installed
    assert machine_java() is not None, "what that step installs is here by other means"
    assert image.entry == ['["tini", "--"]', '["retention", "--help"]']
    assert image.run("retention", "--help").stdout.startswith("Usage: retention")
    for tool in ("pytest", "ruff"):
        assert not (tmp_path / "opt/venv/bin" / tool).exists()

    warehouse = opened(tmp_path / "w", {"name": "ORDERS", "max_msgs": 5, "subjects": ["orders.>"]})
    warehouse.stream("ORDERS").publish(lines(20))
    submit = ("spark-submit", "--master", "local[1]", "jobs/retain.py")
    done = image.run(*submit, "--config", tmp_path / "w" / "retention.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("retain: 1 stream done, 0 failed; removed 15 messages (")
    assert str(tmp_path) in image.run("python", "-c", "import retention; print(retention)").stdout

    program = shutil.which("spark-class", path=image.environment["PATH"])
    assert program == str(tmp_path / "opt/venv/bin/spark-class")
    words = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "spark://127.0.0.1:1")
    log = tmp_path / "worker.log"
    with log.open("wb") as sink:
        worker = subprocess.Popen(
            [program, "org.apache.spark.deploy.worker.Worker", *words],
            cwd=image.place,
            env=image.environment,
            stdout=sink,
            stderr=sink,
        )
    try:
        until(lambda: "Starting Spark worker" in log.read_text(encoding="utf-8"), worker)
    finally:
        worker.kill()
        worker.wait()
