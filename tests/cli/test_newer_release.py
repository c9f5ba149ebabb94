"""A warehouse with a run of a newer release: everything can be read, and nothing is removed or restored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retention.storage.checksum import verified, with_checksum
from tests.support.sandboxes import Commands, commands, lines

RULES = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 5, "archive": "../archive"}


@pytest.fixture
def newer(tmp_path: Path) -> tuple[Commands, str]:
    """A stream with a pass, and a later run of an unknown kind; returns the name of the pass."""
    command = commands(tmp_path / "w", RULES)
    command.json("publish", "ORDERS", stdin="\n".join(lines(9)))
    run = command.json("apply", "ORDERS", "--yes")["streams"][0]["run"]
    hold = {"run": "22001231T235959.000000000Z-abcdef", "kind": "hold", "status": "done"}
    place = tmp_path / "w/runs/ORDERS" / f"{hold['run']}.done.json"
    place.write_text(json.dumps(with_checksum(hold | {"as_of_ns": 7, "subject": "orders.>"})))
    return command, run


def test_removals_are_refused_and_reads_go_on(newer: tuple[Commands, str]) -> None:
    command, run = newer
    for words in (
        ("apply", "ORDERS", "--yes"),
        ("undo", run),
        ("undo", run, "--dry-run"),
        ("restore", "ORDERS"),
        ("delete", "ORDERS", "7", "--yes"),
        ("purge", "ORDERS", "--yes"),
        ("drop", "ORDERS", "--yes"),
        ("compact", "ORDERS", "--yes"),
        ("reclaim", "ORDERS", "--yes"),
        ("repair", "clock", "ORDERS", "--yes"),
    ):
        refused = command.run(*words)
        assert refused.exit_code == 4, (words, refused.output)
    assert refused.stderr.endswith(
        "22001231T235959.000000000Z-abcdef.done.json: a newer release of this program recorded a run of a kind that "
        "this one does not know (hold, done); nothing was changed; use that release, or a later one, to "
        "remove or restore messages of the stream (this one can still read it)\n"
    )
    assert [one["seq"] for one in command.json("messages", "ORDERS")] == [5, 6, 7, 8, 9]
    assert command.json("state", "ORDERS")[0]["messages"] == 5
    assert [one["kind"] for one in command.json("history")] == ["hold", "apply"]
    assert "hold" in command.run("history").stdout
    assert command.json("publish", "ORDERS", stdin=lines(1)[0])
    assert "apply would refuse this plan" in command.run("plan", "ORDERS").stderr
    assert "is of a kind that this release does not know (hold)" in command.run("doctor").stdout


def test_a_log_with_fields_of_a_newer_release_is_refused_and_called_no_damage(
    newer: tuple[Commands, str],
) -> None:
    command, _ = newer
    entry = max((command.folder / "streams/ORDERS/_retention/log").glob("*.json"))
    fields = verified(json.loads(entry.read_text()))
    entry.write_text(json.dumps(with_checksum(fields | {"hold_counter": 3})))
    refused = command.run("state", "ORDERS")
    assert refused.exit_code == 4
    assert refused.stderr.endswith(
        f"{entry}: a newer release of this program wrote this entry of the log of stream ORDERS, with what this one "
        "does not know (hold_counter); nothing was changed; use that release, or a later one\n"
    )
    entry.write_text(json.dumps(fields | {"hold_counter": 3}))
    damaged = command.run("state", "ORDERS")
    assert damaged.exit_code == 6
    assert "hold_counter is not a field that it may have" in damaged.stderr
