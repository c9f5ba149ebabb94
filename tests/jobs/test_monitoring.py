"""Metrics files and JSON logs of jobs, and lags for monitoring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.retention.views.test_metrics import RULE, samples
from tests.support.jobs import run_job
from tests.support.sandboxes import ORDERS, Commands, commands, lines

OTHER = {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 3}
PAST = "2026-01-01T00:00:00Z"
RETAIN = ("retain", "--engine", "local", "--as-of", PAST)


@pytest.fixture
def command(tmp_path: Path) -> Commands:
    """ORDERS with messages of the year 2020, OTHER with five."""
    command = commands(tmp_path, ORDERS, OTHER, engine="local")
    old = lines(48, first_ns=1_600_000_000 * 10**9)
    command.json("publish", "ORDERS", stdin="\n".join(old))
    command.json("publish", "OTHER", stdin="\n".join(lines(5, "other.a")))
    return command


def job(command: Commands, *arguments: str) -> Any:
    name, *others = arguments
    return run_job(name, command.folder, *others)


def measured(command: Commands, file: str = "m.prom") -> dict[tuple[str, str], float]:
    return samples((command.folder / file).read_text(encoding="utf-8"))


def test_a_job_leaves_metrics_of_each_stream(command: Commands) -> None:
    done = job(command, *RETAIN, "--metrics-file", "m.prom")
    assert (done.returncode, done.stderr) == (0, "")
    values = measured(command)
    orders = 'command="retain",stream="ORDERS"'
    assert values["stream_removed_messages", RULE.format("max_age")] == 48
    assert values["stream_removed_messages", 'command="retain",rule="max_msgs",stream="OTHER"'] == 2
    assert values["stream_lag_seconds", orders] == 0
    assert values["stream_dead_bytes", 'command="retain",state="waiting",stream="ORDERS"'] > 0
    assert values["stream_last_success_timestamp_seconds", orders] > 1_700_000_000
    assert [path.name for path in command.folder.iterdir() if "tmp" in path.name] == []
    for name in ("compact", "reclaim", "mirror"):
        assert job(command, name, "--engine", "local", "--metrics-file", "n.prom").returncode == 0
        assert measured(command, "n.prom")["run_exit_code", f'command="{name}"'] == 0


def test_a_job_that_fails_leaves_metrics_and_the_last_success(command: Commands) -> None:
    job(command, *RETAIN, "--metrics-file", "m.prom")
    key = ("stream_last_success_timestamp_seconds", 'command="retain",stream="ORDERS"')
    success = measured(command)[key]
    for arguments, code in (
        (("--config", "missing.yaml"), 2),
        (("--stream", "NONE", "--stream", "ORDERS", "--as-of", "2020-01-01"), 5),
    ):
        failed = job(command, *RETAIN, "--metrics-file", "m.prom", *arguments)
        assert failed.returncode == code
        assert measured(command)["run_exit_code", 'command="retain"'] == code
        assert measured(command)[key] == success
    assert measured(command)["stream_exit_code", 'command="retain",stream="NONE"'] == 2


def test_metrics_that_cannot_be_written_are_an_error_behind_the_run(command: Commands) -> None:
    done = job(command, *RETAIN, "--metrics-file", "retention.yaml/m.prom")
    assert done.returncode != 0
    assert "50 messages" in done.stdout
    assert len(done.stderr.splitlines()) == 1


def test_apply_leaves_metrics_too(command: Commands) -> None:
    file = str(command.folder / "a.prom")
    command.json("apply", "OTHER", "--yes", "--metrics-file", file)
    labels = 'command="apply",rule="max_msgs",stream="OTHER"'
    assert measured(command, "a.prom")["stream_removed_messages", labels] == 2


def events(text: str) -> list[dict[str, Any]]:
    """The events of a log, except those for the start of work on a stream."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line["event"] != "stream_begun"]


def test_a_json_log_has_a_line_for_each_stream_with_its_run(command: Commands) -> None:
    streams = ("--stream", "ORDERS", "--stream", "NONE")
    done = job(command, *RETAIN, *streams, "--log-format", "json", "--metrics-file", "m.prom")
    assert done.returncode == 5
    orders, none = events(done.stderr)
    assert (orders["event"], orders["stream"], orders["level"]) == ("stream_done", "ORDERS", "info")
    assert orders["removed_messages"] == 48
    assert orders["run"] == command.json("history", "ORDERS")[0]["run"]
    assert orders["command"] == none["command"] == "retain"
    assert (none["event"], none["level"], none["exit_code"]) == ("stream_failed", "error", 2)
    assert none["message"].startswith("NONE: there is no such stream")
    assert orders["time"].endswith("Z")
    begun = next(json.loads(line) for line in done.stderr.splitlines())
    assert (begun["event"], begun["stream"]) == ("stream_begun", "ORDERS")


def test_a_json_log_of_a_job_that_fails_as_a_whole_is_json_too(command: Commands) -> None:
    done = job(command, *RETAIN, "--config", "none.yaml", "--log-format", "json", "--debug")
    (failed,) = events(done.stderr)
    assert (failed["event"], failed["exit_code"]) == ("run_failed", 2)
    assert failed["traceback"].startswith("Traceback")
    (command.folder / "empty").mkdir()
    empty = job(command, *RETAIN, "--warehouse", "empty", "--log-format", "json")
    (note,) = events(empty.stderr)
    assert (note["level"], empty.returncode) == ("warning", 0)


def test_a_json_log_says_what_a_budget_left(command: Commands) -> None:
    done = job(command, *RETAIN, "--max-time", "0s", "--log-format", "json")
    assert [event["event"] for event in events(done.stderr)] == ["stream_left", "stream_left"]


def test_a_lag_beyond_the_limit_ends_with_three(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS, OTHER, engine="local")
    assert command.run("state", "--max-lag", "0s").exit_code == 0
    command.json("publish", "OTHER", stdin="\n".join(lines(5, "other.a", 10**18)))
    done = command.run("state", "--max-lag", "1d", "--format", "json")
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1].startswith("OTHER: behind its policy for ")
    assert len(json.loads(done.stdout)) == 2
    assert command.run("state", "ORDERS", "--max-lag", "1d").exit_code == 0
    assert command.run("state", "OTHER", "--max-lag", "36500d").exit_code == 0
    assert command.run("state", "OTHER", "--max-lag", "soon").exit_code == 2
    command.json("apply", "OTHER", "--yes")
    assert command.run("state", "--max-lag", "0s").exit_code == 0


def test_a_quiet_json_log_is_silent_unless_something_is_wrong(command: Commands) -> None:
    quiet = ("--log-format", "json", "--quiet")
    done = job(command, *RETAIN, "--stream", "OTHER", *quiet)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    failed = job(command, *RETAIN, "--stream", "OTHER", "--stream", "NONE", *quiet)
    assert [event["event"] for event in events(failed.stderr)] == ["stream_failed"]
