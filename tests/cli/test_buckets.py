"""The commands of a bucket: their output, and their exit codes for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.sandboxes import Commands, commands


def written(folder: Path) -> Commands:
    """A hand-written configuration."""
    (folder / "retention.yaml").write_text("warehouse: .\ndefaults: {format: parquet}\n")
    return Commands(folder)


@pytest.fixture
def lake(tmp_path: Path) -> Commands:
    made = written(tmp_path)
    assert made.run("kv", "B", "add", "--history", "3", "--ttl", "1h").exit_code == 0
    return made


def test_a_value_is_put_got_decided_upon_and_deleted(lake: Commands) -> None:
    assert lake.run("kv", "B", "put", "a", "hello").stdout == "1\n"
    assert lake.run("kv", "B", "put", "b", "-", stdin="from input").stdout == "2\n"
    assert lake.run("kv", "B", "get", "a").stdout == "hello"
    assert lake.json("kv", "B", "get", "b")["value"] == "from input"
    conflict = lake.run("kv", "B", "update", "a", "x", "--revision", "7")
    assert (conflict.exit_code, conflict.stdout) == (7, "")
    assert "'a' is at revision 1, and 7 was expected" in conflict.stderr
    assert lake.json("kv", "B", "update", "a", "two", "--revision", 1) == {
        "bucket": "B",
        "key": "a",
        "revision": 3,
    }
    assert lake.run("kv", "B", "create", "a", "x").exit_code == 7
    assert lake.run("kv", "B", "delete", "a", "--revision", "1").exit_code == 7
    assert lake.run("kv", "B", "delete", "a", "--revision", "3").stdout == "4\n"
    assert lake.run("kv", "B", "get", "a").exit_code == 2
    assert lake.run("kv", "B", "get", "a", "--revision", "3").stdout == "two"
    assert lake.run("kv", "B", "purge", "a").stdout == "5\n"
    assert [entry["operation"] for entry in lake.json("kv", "B", "history", "a")] == ["purge"]
    assert lake.run("kv", "B", "keys").stdout == "b\n"
    assert lake.json("kv", "B", "keys") == ["b"]
    assert lake.json("kv", "B", "status")["values"] == 2


def test_many_values_are_put_in_one_commit(lake: Commands) -> None:
    given = '{"key": "a", "value": {"x": [1]}}\n\n{"key": "b", "value_b64": "AAE="}\n'
    assert lake.run("kv", "B", "put", "--from", "-", stdin=given).stdout == (
        "2 values put, revisions 1 to 2\n"
    )
    assert lake.json("kv", "B", "get", "b")["value_b64"] == "AAE="
    assert lake.run("kv", "B", "get", "a").stdout == '{"x": [1]}'
    wrong = lake.run("kv", "B", "put", "--from", "-", stdin='{"key": "c"}')
    assert (wrong.exit_code, "line 1: it has neither value nor value_b64" in wrong.stderr) == (
        2,
        True,
    )
    for arguments in (["a"], ["a", "b", "--from", "-"], []):
        assert lake.run("kv", "B", "put", *arguments).exit_code == 2


def test_what_is_listed_is_what_has_a_value(lake: Commands) -> None:
    lake.run(
        "kv",
        "B",
        "put",
        "--from",
        "-",
        stdin='{"key":"eu.a","value":"1"}\n{"key":"us.b","value":"2"}',
    )
    assert [entry["key"] for entry in lake.json("kv", "B", "ls", "eu.>")] == ["eu.a"]
    table = lake.run("kv", "B", "ls").stdout.splitlines()
    assert table[0].split() == ["KEY", "REVISION", "CREATED", "OPERATION", "VALUE"]
    assert len(table) == 3
    watched = lake.run("--format", "jsonl", "kv", "B", "watch", "--once", "us.*").stdout
    assert json.loads(watched)["key"] == "us.b"
    assert lake.run("kv", "B", "watch", "--once").stdout.count("@") == 2


def test_deleted_keys_are_purged_and_come_back(lake: Commands) -> None:
    lake.run("kv", "B", "put", "a", "1")
    lake.run("kv", "B", "delete", "a")
    assert lake.run("kv", "B", "purge-deletes").exit_code == 2
    shown = lake.run("kv", "B", "purge-deletes", "--older-than", "0s", "--dry-run")
    assert "2 messages" in shown.stdout
    done = lake.json("kv", "B", "purge-deletes", "--older-than", "0s", "--yes")
    assert done["streams"][0]["removed_messages"] == 2
    assert lake.run("kv", "B", "history", "a").exit_code == 2
    assert lake.run("undo", done["streams"][0]["run"]).exit_code == 0
    assert lake.run("kv", "B", "history", "a").exit_code == 0


def test_a_bucket_is_listed_once(tmp_path: Path) -> None:
    lake = written(tmp_path)
    first = lake.run("kv", "B", "add", "--ttl", "1h")
    assert "is listed in" in first.stdout
    again = lake.run("kv", "B", "add", "--ttl", "60m")
    assert (again.exit_code, "is listed already" in again.stdout) == (0, True)
    other = lake.run("kv", "B", "add", "--ttl", "2h")
    assert (other.exit_code, "with another ttl" in other.stderr) == (2, True)
    assert lake.json("kv", "C", "add", "--history", "64") == {
        "bucket": "C",
        "stream": "KV_C",
        "added": True,
    }
    assert lake.json("kv", "C", "status")["history"] == 64


def test_a_bucket_that_is_nowhere_is_an_error_to_read_and_said_to_write(tmp_path: Path) -> None:
    lake = commands(tmp_path)
    for command in (
        ["get", "a"],
        ["ls"],
        ["keys"],
        ["status"],
        ["history", "a"],
        ["watch", "--once"],
    ):
        assert lake.run("kv", "NEW", *command).exit_code == 2, command
    put = lake.run("kv", "NEW", "put", "a", "1")
    assert (put.exit_code, put.stdout) == (0, "1\n")
    assert "bucket NEW is not listed" in put.stderr
    assert lake.run("kv", "NEW", "purge", "a").exit_code == 0
    assert lake.run("kv", "a.b", "keys").exit_code == 2
