from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from retention import __version__
from retention.api.warehouse import Warehouse
from retention.cli.app import options_first
from retention.doctor import build_version
from tests.support.command_line import invoke
from tests.support.sandboxes import ORDERS, commands, configured

COMMANDS = [
    *(
        "init",
        "adopt",
        "validate",
        "publish",
        "import",
        "export",
        "mirror",
        "sync",
        "simulate",
        "replay",
        "plan",
        "apply",
    ),
    *(
        "purge",
        "delete",
        "delete-segments",
        "drop",
        "erase",
        "undo",
        "restore",
        "repair",
        "compact",
        "reclaim",
        "verify",
        "hold",
        "pause",
        "resume",
        "explain",
        "messages",
        "view",
        "state",
        "consumer",
        "offset",
        "kv",
    ),
    *("stats", "history", "report", "doctor", "effective", "package", "airflow"),
]
NOT_BUILT = ("iggy",)


def shell(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed command, in a folder."""
    return subprocess.run(
        [sys.executable, "-c", "from retention.cli.main import main; main()", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_help_shows_what_is_built_and_nothing_else() -> None:
    said = invoke(["--help"]).stdout
    listed = said[said.index("Commands:") :]
    assert [
        line.split()[0] for line in listed.splitlines()[1:] if line.startswith("  ")
    ] == COMMANDS
    assert not [word for word in NOT_BUILT if word in said]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    done = invoke([command, "--help"])
    assert done.exit_code == 0
    assert "Usage: retention" in done.stdout


def test_the_version_is_the_packages_and_says_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = invoke(["--version"]).stdout
    assert re.fullmatch(
        rf"{re.escape(__version__)} \(build (?:[0-9a-f]{{12}}(?:-changed)?|not recorded)\)\n", said
    )
    monkeypatch.setattr(build_version, "PACKAGE", tmp_path / "retention")
    assert build_version.version_and_build() == f"{__version__} (build not recorded)"
    (tmp_path / "retention").mkdir()
    (tmp_path / "retention" / build_version.RECORD).write_text("0123456789ab\n")
    assert build_version.version_and_build() == f"{__version__} (build 0123456789ab)"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["state", "--format", "json"], ["--format", "json", "state"]),
        (["plan", "A", "--engine=local", "--debug"], ["--engine=local", "--debug", "plan", "A"]),
        (["explain", "--", "--debug"], ["explain", "--", "--debug"]),
        (["state", "--format"], ["--format", "state"]),
        (["apply", "--yes", "--config", "x"], ["--config", "x", "apply", "--yes"]),
    ],
)
def test_global_options_stand_anywhere(given: list[str], taken: list[str]) -> None:
    assert options_first(given) == taken


def test_no_configuration_and_no_warehouse_is_a_usage_error(tmp_path: Path) -> None:
    done = shell(tmp_path, "state")
    assert done.returncode == 2
    assert done.stderr.startswith("there is no retention.yaml in this directory: give --warehouse")
    assert done.stdout == ""


def test_the_configuration_of_the_directory_is_used(tmp_path: Path) -> None:
    configured(tmp_path, ORDERS)
    assert '"ORDERS"' in shell(tmp_path, "state", "--format", "json").stdout


def test_warehouse_and_config_exclude_each_other(tmp_path: Path) -> None:
    done = invoke(["--warehouse", str(tmp_path), "--config", "x", "state"])
    assert done.exit_code == 2
    assert "exclude each other" in done.stderr


def test_an_unknown_option_is_a_usage_error() -> None:
    assert invoke(["plan", "--oops"]).exit_code == 2
    assert invoke(["--engine", "abacus", "plan"]).exit_code == 2
    assert invoke(["replay"]).exit_code == 2


def test_mistakes_of_the_configuration_end_with_two(tmp_path: Path) -> None:
    done = commands(tmp_path, {**ORDERS, "max_agee": "7d"}).run("plan")
    assert done.exit_code == 2
    assert "retention.yaml:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_surprise_is_one_sentence_and_its_place_only_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(_: Warehouse) -> list[str]:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(Warehouse, "streams", surprise)
    command = commands(tmp_path, ORDERS)
    done = command.run("state")
    assert done.exit_code == 1
    assert (
        done.stderr == "unexpected ZeroDivisionError: by zero; --debug shows where it came from\n"
    )
    shown = command.run("state", "--debug")
    assert shown.exit_code == 1
    assert "Traceback" in shown.stderr


def test_stream_names_are_completed(tmp_path: Path) -> None:
    configured(tmp_path, ORDERS, {"name": "OTHER", "subjects": ["other.>"]})
    (tmp_path / "streams" / "OR%20X").mkdir(parents=True)
    asked = {
        "_RETENTION_COMPLETE": "complete_bash",
        "COMP_WORDS": "retention plan OR",
        "COMP_CWORD": "2",
    }
    assert shell(tmp_path, **asked).stdout.split("\n") == ["OR X", "ORDERS", ""]


def test_completion_is_silent_where_the_configuration_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text("streams: 7", encoding="utf-8")
    asked = {
        "_RETENTION_COMPLETE": "complete_bash",
        "COMP_WORDS": "retention plan O",
        "COMP_CWORD": "2",
    }
    done = shell(tmp_path, **asked)
    assert done.stdout.strip() == ""
    assert "Traceback" not in done.stderr
