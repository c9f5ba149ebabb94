from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from retention.engines.spark import java
from retention.errors import UsageError

ASKED = "\n    java.home = {home}\n    java.specification.version = {version}\n"


def put_java(home: Path, version: str) -> Path:
    """A program `bin/java` in `home` that prints a version, or otherwise its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    stated = ASKED.format(home=home, version=version)
    program.write_text(
        f'#!/bin/sh\ncase $1 in -XshowSettings*) echo "{stated}" >&2;; *) printf "%s\\n" "$@";; esac\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java, and an empty Python environment."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(java, "packaged_java", lambda: None)


def test_without_any_java_the_refusal_is_one_sentence_that_names_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"^[^\n]*Java 17 or later[^\n]*make setup[^\n]*$"):
        java.find_java()


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(tmp_path / "path", "25")
    monkeypatch.setenv("JAVA_HOME", str(put_java(tmp_path / "home", "17")))
    assert java.machine_java() == tmp_path / "home"


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_a_java_that_is_too_old_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(put_java(tmp_path / "home", version)))
    assert java.machine_java() is None
    put_java(tmp_path / "path", "21")
    assert java.machine_java() == tmp_path / "path"


def test_a_java_home_that_does_not_exist_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert java.machine_java() is None


def test_the_packaged_java_is_the_last_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = put_java(tmp_path / "packaged", "21")
    monkeypatch.setattr(java, "packaged_java", lambda: packaged)
    assert str(packaged) in (java.find_java() / "bin" / "java").read_text()
    machine = put_java(tmp_path / "path", "17")
    assert str(machine) in (java.find_java() / "bin" / "java").read_text()


def test_the_front_passes_everything_on_but_the_vector_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(put_java(tmp_path / "home", "17")))
    front = java.find_java() / "bin" / "java"
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "Main", "", "x"]
    said = subprocess.run(
        [front, *given],
        env={"JAVA_TOOL_OPTIONS": "-Da=1 -Db=2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split("\n")[:-1] == ["-Da=1", "-Db=2", "-cp", "a b:*", "Main", "", "x"]
