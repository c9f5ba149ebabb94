from __future__ import annotations

import json
import os
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import typer.main
from deltalake import write_deltalake

import retention
from retention.cli.examples import MEANINGS
from retention.cli.main import app
from retention.core.outcomes import UNEXPECTED
from retention.jobs import ingest, retain
from tests.support.command_line import invoke
from tests.support.pages import RUN, blocks, plain, sessions, tidy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "retention.yaml").write_text(blocks(README, "yaml")[0])
    (tmp_path / "orders.jsonl").write_text(blocks(README, "jsonl")[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_readme_print_what_it_says(directory: Path) -> None:
    """After an intended change, `ACCEPT=1 pytest tests/docs/test_readme.py` writes the new output into the page."""
    page, last_run = README, ""
    for command, said in sessions(README):
        program, *arguments = RUN.sub(last_run, command).split()
        assert program == "retention"
        result = invoke(arguments)
        assert result.exit_code == 0, result.output
        if plain(result.stdout) != plain(said):
            page = page.replace(f"$ {command}\n{said}", f"$ {command}\n{tidy(result.stdout)}")
        last_run = next(iter(RUN.findall(result.stdout)), last_run)
    if os.environ.get("ACCEPT"):
        (ROOT / "README.md").write_text(page)
    assert page == (ROOT / "README.md").read_text(encoding="utf-8")
    assert (directory / "streams" / "ORDERS").is_dir()


def test_the_python_of_the_readme_does_what_it_says(directory: Path) -> None:
    retention.open_warehouse(directory).stream("ORDERS").publish(directory / "orders.jsonl")
    names: dict[str, object] = {}
    exec(compile(blocks(README, "python")[0], "README.md", "exec"), names)  # noqa: S102
    assert getattr(names["report"], "removed_messages", None) == 3


def test_every_command_is_documented_with_every_option() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    command = typer.main.get_command(app)
    commands = getattr(command, "commands", {})
    listed = re.findall(r"^\| `([\w-]+)", text, re.MULTILINE)
    assert sorted({name for name in listed if name in commands}) == sorted(commands)
    for name, one in commands.items():
        leaves = getattr(one, "commands", {name: one}).values()
        options = [option for leaf in leaves for part in leaf.params for option in part.opts]
        missing = [o for o in options if o[:2] == "--" and not re.search(rf"`[^`]*{o}\b", text)]
        assert not missing, f"{name}: {missing}"


def test_exit_codes_are_those_that_commands_say_in_their_help() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    codes = re.findall(r"^\| (\d+) \| ", text.split("## Exit codes")[1], re.MULTILINE)
    assert list(map(int, codes)) == sorted({*MEANINGS, UNEXPECTED})


def test_the_job_of_the_readme_takes_its_arguments(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [line.split() for line in blocks(README, "sh")[1].splitlines()]
    retention.open_warehouse(directory).stream("ORDERS").publish(directory / "orders.jsonl")
    for command in commands:
        at = next(number for number, word in enumerate(command) if "jobs" in word)
        monkeypatch.setattr("sys.argv", ["retain", *command[at + 1 :], "--engine", "local"])
        assert retain.main() == 0
    report = json.loads((directory / "report.json").read_text())
    assert report["streams"][0]["removed_messages"] == 6


@pytest.mark.spark
def test_a_table_that_one_has_becomes_a_stream(
    directory: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    when = datetime(2025, 3, 1, tzinfo=UTC)
    rows = pa.table({"customer": ["ada", "bob"], "body": ["placed", "paid"], "at": [when, when]})
    write_deltalake(directory / "events", rows)
    # The JVM of the tests runs in another directory.
    here = blocks(README, "sh")[0].replace("./events", str(directory / "events"))
    command, plan = map(shlex.split, here.splitlines())
    monkeypatch.setattr("sys.argv", command[2:])
    assert ingest.main() == 0
    planned = invoke(plan[1:])
    assert "ORDERS: would remove 2 messages" in planned.stdout
