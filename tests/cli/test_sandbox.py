from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import invoke
from tests.support.sandboxes import Commands


def test_a_sandbox_is_ready_to_be_played_with(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "sandbox"
    done = invoke(["init", str(folder)])
    assert done.exit_code == 0, done.stderr
    assert "retention plan" in done.stdout
    command = Commands(folder)
    assert command.json("state")[0]["messages"] == 240
    by_rule = command.json("plan")["streams"][0]["by_rule"]
    assert by_rule.keys() == {"max_age", "max_msgs_per_subject"}
    assert command.json("explain", "ORDERS", 1)["goes"]
    report = command.json("apply", "--yes")["streams"][0]
    assert report["removed_messages"] == sum(by_rule.values())


def test_a_sandbox_that_was_left_alone_for_long_says_that_much_goes_and_lets_it_go(
    tmp_path: Path,
) -> None:
    invoke(["init", str(tmp_path)])
    done = Commands(tmp_path).run(
        "apply", "--yes", "--as-of", "2100-01-01T00:00:00Z", "--allow-future"
    )
    assert done.exit_code == 0, done.stderr
    assert "guard" in done.stderr
    assert "50%" in done.stderr
    assert Commands(tmp_path).json("state")[0]["messages"] == 0


def test_the_configuration_names_a_schema_that_is_there(tmp_path: Path) -> None:
    invoke(["init", str(tmp_path)])
    first_line = (tmp_path / "retention.yaml").read_text(encoding="utf-8").splitlines()[0]
    schema = first_line.removeprefix("# yaml-language-server: $schema=")
    assert json.loads((tmp_path / schema).read_text(encoding="utf-8"))["title"] == "retention.yaml"


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    done = invoke(["init", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not empty" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious"]


def test_a_file_cannot_become_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert invoke(["init", str(tmp_path / "file")]).exit_code == 2


def test_what_was_made_is_told_to_programs(tmp_path: Path) -> None:
    done = invoke(["--format", "json", "init", str(tmp_path)])
    assert json.loads(done.stdout) == {
        "directory": str(tmp_path),
        "stream": "ORDERS",
        "messages": 240,
    }
