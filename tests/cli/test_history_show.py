"""`history show RUN`: removals of a run by segment and rule, its author, and the messages as long as they are known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from retention.history.initiator import initiator
from tests.support.sandboxes import ORDERS, Commands, commands, lines


@pytest.fixture(params=["delta", "parquet"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    """30 messages an hour apart on one subject; a pass removes the six oldest from a file."""
    settings = {"segment_span": "12h", "max_msgs_per_subject": 24, "format": request.param}
    command = commands(tmp_path / "w", {**ORDERS, "max_age": "3650d", **settings})
    command.json("publish", "ORDERS", stdin="\n".join(lines(30)))
    return command


def applied(command: Commands) -> str:
    [report] = command.json("apply", "ORDERS", "--yes")["streams"]
    return str(report["run"])


def test_a_run_is_shown_by_segment_and_rule(orders: Commands) -> None:
    run = applied(orders)
    shown = orders.json("history", "show", run)
    assert (shown["run"], shown["stream"], shown["removed_messages"]) == (run, "ORDERS", 6)
    assert shown["who"] == initiator()
    assert shown["recorded_ranges"]
    assert shown["recovery"]["possible"]
    [loss] = shown["by_segment"]
    assert (loss["segment"], loss["messages"], loss["files"]) == (1, 6, 1)
    assert loss["by_rule"] == {"max_msgs_per_subject": 6}
    assert loss["bytes"] == shown["removed_bytes"]
    table = orders.run("history", "show", run).stdout
    assert f"{run}: apply, stream ORDERS, -6 messages" in table
    assert f"process {initiator()['pid']}" in table
    assert f"`retention undo {run}` can restore it until " in table
    assert "max_msgs_per_subject 6" in table


def test_messages_are_shown_on_request(orders: Commands) -> None:
    run = applied(orders)
    shown = orders.json("history", "show", run, "--messages")["messages"]
    assert [message["seq"] for message in shown] == [1, 2, 3, 4, 5, 6]
    assert shown[0]["subject"] == "orders.new"
    assert shown[0]["rules"] == ["max_msgs_per_subject"]
    printed = orders.run("--format", "jsonl", "history", "show", run, "--messages").stdout
    assert [json.loads(line) for line in printed.splitlines()] == shown
    table = orders.run("history", "show", run, "--messages").stdout
    assert "orders.new" in table.splitlines()[-1]


def test_where_files_are_gone_ranges_are_shown(orders: Commands) -> None:
    run = applied(orders)
    for place in ("messages", "_retention/trash"):
        shutil.rmtree(orders.folder / "streams/ORDERS" / place / "partition=0", ignore_errors=True)
    shown: list[dict[str, Any]] = orders.json("history", "show", run, "--messages")["messages"]
    [gone] = shown
    assert (gone["first_seq"], gone["last_seq"], gone["messages"]) == (1, 6, 6)
    assert "1 to 6" in orders.run("history", "show", run, "--messages").stdout


def test_an_undone_run_says_so(orders: Commands) -> None:
    run = applied(orders)
    undo = orders.json("undo", run)["run"]
    shown = orders.json("history", "show", run)
    assert shown["recovery"]["undone_by"] == undo
    assert not shown["recovery"]["possible"]
    assert f"run {undo} restored it" in orders.run("history", "show", run).stdout
    assert f"undid run {run}" in orders.run("history", "show", undo).stdout
    assert orders.json("history", "show", undo)["by_segment"] == []


def test_what_an_earlier_version_recorded_is_shown_as_far_as_it_goes(orders: Commands) -> None:
    run = applied(orders)
    (orders.folder / f"streams/ORDERS/_retention/reports/{run}.ranges.arrow").unlink()
    shown = orders.json("history", "show", run, "--messages")
    assert not shown["recorded_ranges"]
    assert shown["messages"] == []
    [loss] = shown["by_segment"]
    assert (loss["messages"], loss["by_rule"]) == (6, None)
    assert (
        "the messages that it removed are not recorded" in orders.run("history", "show", run).stdout
    )


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_run_that_is_none_is_refused(orders: Commands, form: str) -> None:
    done = orders.run("--format", form, "history", "show", "20270101T000000.000000000Z-abcdef")
    assert done.exit_code == 2
    assert "no stream in" in done.stderr


def test_words_that_are_no_run_are_streams(tmp_path: Path) -> None:
    command = commands(tmp_path / "w", ORDERS, {"name": "show", "subjects": ["show.>"]})
    command.json("publish", "ORDERS", stdin=lines(1)[0])
    assert command.json("history", "show", "ORDERS") == []
    assert command.run("history", "--messages").exit_code == 2
