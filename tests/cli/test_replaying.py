from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.sandboxes import NOW, Commands, commands, lines


@pytest.fixture
def orders(tmp_path: Path) -> Commands:
    """ORDERS with four messages, an hour apart."""
    command = commands(tmp_path, {"name": "ORDERS", "subjects": ["orders.>"]})
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(4)))
    return command


def test_states_and_fates_are_printed_in_each_format(orders: Commands) -> None:
    arguments = ("replay", "ORDERS", "--set", "max_msgs=1", "--at", NOW)
    document = orders.json(*arguments, "--seq", 3)
    assert [state["messages"] for state in document["states"]] == [1]
    assert [fate["fate"] for fate in document["fates"]] == ["removed"]
    said = orders.run(*arguments, "--seq", 4).stdout
    assert "would have held 1 message" in said
    assert "message 4 (orders.new): the server's 4, kept" in said
    rows = orders.run("--format", "jsonl", *arguments).stdout.splitlines()
    assert [json.loads(row)["seq"] for row in rows] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--set", "max_msgs"), 2, "is not KEY=VALUE"),
        (("--seq", "9"), 2, "has the sequence 9"),
        (("--set", "retention=workqueue"), 4, "its consumers decide"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    orders: Commands, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    done = orders.run("replay", "ORDERS", *arguments)
    assert done.exit_code == code
    assert sentence in done.stderr


def test_a_topic_is_refused(tmp_path: Path) -> None:
    command = commands(tmp_path, {"name": "ORDERS"})
    file = tmp_path / "retention.yaml"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"topics": [{"name": "clicks"}]}))
    done = command.run("replay", "clicks")
    assert done.exit_code == 2
    assert "clicks: is a topic" in done.stderr
