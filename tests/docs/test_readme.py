"""The README and the first hours: every command has the printed output, every program the described effect."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import retention
from retention.jobs import ingest, retain
from tests.support.command_line import invoke
from tests.support.pages import blocks, executed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
START = ROOT / "docs" / "start"
README, TABLE, LINES, BACKUP = (
    ROOT / "README.md",
    START / "table.md",
    START / "json-lines.md",
    START / "nats-backup.md",
)


def block(page: Path, kind: str, number: int = 0) -> str:
    return blocks(page.read_text(encoding="utf-8"), kind)[number]


def run_program(page: Path) -> dict[str, object]:
    """The names that the first Python of a page has at its end."""
    names: dict[str, object] = {}
    exec(compile(block(page, "python"), page.name, "exec"), names)  # noqa: S102
    return names


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "retention.yaml").write_text(block(LINES, "yaml"))
    (tmp_path / "orders.jsonl").write_text(block(LINES, "jsonl"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outputs_match(page: Path, folder: Path) -> None:
    """After an intended change, `ACCEPT=1 pytest tests/docs/test_readme.py` writes the new output into the pages."""
    assert executed(page, folder) == page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [README, TABLE], ids=["readme", "table"])
def test_a_table_gets_limits_as_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_program(TABLE)
    outputs_match(page, tmp_path)


def test_json_lines_become_a_stream_as_the_page_says(directory: Path) -> None:
    outputs_match(LINES, directory)
    assert (directory / "streams" / "ORDERS").is_dir()


def test_a_backup_becomes_a_stream_as_the_page_says(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = retention.open_warehouse(directory).stream("ORDERS")
    stream.publish(directory / "orders.jsonl")
    reader = tmp_path_factory.mktemp("reader")
    stream.export_nats_backup(f"{reader}/backup/")
    (reader / "retention.yaml").write_text(block(BACKUP, "yaml"))
    monkeypatch.chdir(reader)
    outputs_match(BACKUP, reader)
    assert (reader / "restored" / "stream.tar.s2").is_file()


def test_the_python_of_the_first_hour_does_what_it_says(directory: Path) -> None:
    pytest.importorskip("matplotlib")
    retention.open_warehouse(directory).stream("ORDERS").publish(directory / "orders.jsonl")
    assert getattr(run_program(LINES)["report"], "removed_messages", None) == 3


def test_the_jobs_of_the_first_hours_take_their_arguments(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [line.split() for page in (LINES, TABLE) for line in block(page, "sh").splitlines()]
    retention.open_warehouse(directory).stream("ORDERS").publish(directory / "orders.jsonl")
    for command in commands:
        at = next(number for number, word in enumerate(command) if "jobs" in word)
        monkeypatch.setattr("sys.argv", ["retain", *command[at + 1 :], "--engine", "local"])
        assert retain.main() == 0
        report = json.loads((directory / "report.json").read_text())
        assert report["streams"][0]["stream"] == "ORDERS"


@pytest.mark.spark
def test_a_table_that_one_has_becomes_a_stream(
    directory: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    when = datetime(2025, 3, 1, tzinfo=UTC)
    rows = pa.table({"customer": ["ada", "bob"], "body": ["placed", "paid"], "at": [when, when]})
    write_deltalake(directory / "events", rows)
    # The JVM of the tests runs in another directory.
    here = block(TABLE, "sh", 1).replace("./events", str(directory / "events"))
    command, plan = map(shlex.split, here.splitlines())
    monkeypatch.setattr("sys.argv", command[2:])
    assert ingest.main() == 0
    planned = invoke(plan[1:])
    assert "ORDERS: would remove 2 messages" in planned.stdout
