from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.sandboxes import ORDERS, Commands, commands, lines

PROTECTED = {"name": "PROTECTED", "subjects": ["p.>"], "deny_purge": True, "deny_delete": True}
SEALED = {"name": "SEALED", "subjects": ["s.>"], "sealed": True}


@pytest.fixture(params=["delta", "parquet"])
def orders(tmp_path: Path, request: pytest.FixtureRequest) -> Commands:
    """ORDERS with messages 1 to 9, of which 1 to 6 are `orders.a`, the others `orders.b`."""
    command = commands(tmp_path, ORDERS, PROTECTED, SEALED, format=request.param)
    published = [*lines(6, "orders.a"), *lines(3, "orders.b")]
    command.json("publish", "ORDERS", "-", stdin="\n".join(published))
    return command


def left(command: Commands) -> list[int]:
    state: dict[str, Any] = command.json("state", "ORDERS")[0]
    return [state["messages"], state["first_seq"], state["last_seq"]]


def test_a_purge_is_planned_carried_out_recorded_and_undone(orders: Commands) -> None:
    shown = orders.run("purge", "ORDERS", "--subject", "orders.a", "--keep", 2, "--dry-run")
    assert "remove 4 of 9 messages: purge of orders.a, all but the newest 2" in shown.stdout
    assert left(orders) == [9, 1, 9]
    (entry,) = orders.json("purge", "ORDERS", "--subject", "orders.a", "--keep", 2, "--yes")[
        "streams"
    ]
    assert (entry["removed_messages"], entry["by_rule"]) == (4, {"purge": 4})
    assert left(orders) == [5, 5, 9]
    (record,) = orders.json("history")
    assert (record["kind"], record["request"]["keep"]) == ("purge", 2)
    assert "purge 4" in orders.run("history").stdout
    assert orders.json("undo", record["run"])["restored_messages"] == 4
    assert left(orders) == [9, 1, 9]


def test_a_delete_names_its_messages(orders: Commands) -> None:
    done = orders.run("delete", "ORDERS", 9, 2, "--yes")
    assert "ORDERS: removed 2 messages (" in done.stdout
    assert "2 by delete" in done.stdout
    assert left(orders) == [7, 1, 9]


def test_a_purge_that_means_nothing_says_so(orders: Commands) -> None:
    done = orders.run("purge", "ORDERS", "--subject", "nobody.>", "--yes")
    assert done.exit_code == 0
    assert "removed nothing: purge of nobody.>: no message matches" in done.stdout
    done = orders.run("purge", "ORDERS", "--seq", 1, "--yes")
    assert "removed nothing" in done.stdout
    assert left(orders) == [9, 1, 9]


def test_a_purge_beyond_the_end_says_where_the_stream_goes_on(orders: Commands) -> None:
    shown = orders.run("purge", "ORDERS", "--seq", 15, "--dry-run").stdout
    assert "the next message gets sequence 15" in shown
    orders.run("purge", "ORDERS", "--yes")
    assert (
        "the next sequence has moved" in orders.run("purge", "ORDERS", "--seq", 15, "--yes").stdout
    )
    assert left(orders) == [0, 15, 14]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("purge", "ORDERS"), 2, "--yes"),
        (("delete", "ORDERS", 1), 2, "--yes"),
        (("delete", "ORDERS", "--yes"), 2, "SEQ"),
        (("purge", "ORDERS", "--seq", 3, "--keep", 2, "--yes"), 2, "error code 10003"),
        (("purge", "ORDERS", "--subject", "orders..a", "--yes"), 2, "no subject filter"),
        (("purge", "ORDERS", "--seq", -1, "--yes"), 2, "out of range"),
        (("purge", "NOBODY", "--yes"), 2, "no such stream"),
        (("delete", "ORDERS", 4, 77, "--yes"), 2, "stream store EOF, error code 10057"),
        (("delete", "PROTECTED", 1, "--yes"), 4, "error code 10057"),
        (("purge", "PROTECTED", "--dry-run"), 4, "error code 10110"),
        (("purge", "SEALED", "--yes"), 4, "error code 10109"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_changed(
    orders: Commands, words: tuple[object, ...], code: int, said: str
) -> None:
    done = orders.run(*words)
    assert done.exit_code == code
    assert said in done.stderr
    assert left(orders) == [9, 1, 9]


@pytest.mark.parametrize(("answer", "messages"), [("y\n", 3), ("n\n", 9)])
def test_on_a_terminal_it_shows_what_goes_and_asks(
    orders: Commands, monkeypatch: pytest.MonkeyPatch, answer: str, messages: int
) -> None:
    monkeypatch.setattr("retention.cli.removing.can_ask", lambda: True)
    done = orders.run("purge", "ORDERS", "--subject", "orders.a", stdin=answer)
    assert done.exit_code == 0
    assert "remove 6 of 9 messages: purge of orders.a" in done.stderr
    assert left(orders)[0] == messages


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_delete_with_erasure_leaves_nothing_to_undo(tmp_path: Path, format_: str) -> None:
    command = commands(tmp_path, ORDERS, format=format_)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(3)))
    assert command.run("delete", "ORDERS", 2, "--erase", "--yes").exit_code == 0
    (record,) = command.json("history")
    assert record["kind"] == "erase"
    undone = command.run("undo", record["run"])
    assert (undone.exit_code, "cannot be undone" in undone.stderr) == (2, True)


def test_a_stream_is_dropped_shown_as_such_and_brought_back(orders: Commands) -> None:
    assert orders.run("drop", "ORDERS").exit_code == 2
    shown = orders.run("drop", "ORDERS", "--dry-run").stdout
    assert "9 messages" in shown
    assert "the next write begins a new table" in shown
    done = orders.run("drop", "ORDERS", "--yes")
    assert done.exit_code == 0, done.output
    (record,) = orders.json("history")
    assert (record["kind"], record["removed_messages"]) == ("drop", 9)
    says = f"`retention undo {record['run']}` restores it"
    assert "ORDERS: dropped, removed 9 messages" in done.stdout
    for words in (("state", "ORDERS"), ("plan", "ORDERS"), ("apply", "ORDERS", "--yes")):
        assert says in orders.run(*words).stdout
        entry = orders.json(*words)
        entry = entry[0] if words[0] == "state" else entry["streams"][0]
        assert entry["dropped"]["run"] == record["run"]
    assert orders.run("messages", "ORDERS").exit_code == 0
    assert orders.run("drop", "ORDERS", "--yes").exit_code == 2
    assert f"{record['run']}" in orders.run("history", "show", record["run"]).stdout
    assert orders.json("undo", record["run"])["restored_messages"] == 9
    assert left(orders) == [9, 1, 9]


@pytest.mark.parametrize(("answer", "messages"), [("y\n", 0), ("n\n", 9)])
def test_a_drop_asks_on_a_terminal(
    orders: Commands, monkeypatch: pytest.MonkeyPatch, answer: str, messages: int
) -> None:
    monkeypatch.setattr("retention.cli.removing.can_ask", lambda: True)
    done = orders.run("drop", "ORDERS", stdin=answer)
    assert done.exit_code == 0
    assert "Drop ORDERS?" in done.stderr
    assert left(orders)[0] == messages
