from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from retention.history.runs import history_of
from tests.cli.test_writing import backup
from tests.support.run_records import run_record
from tests.support.sandboxes import NOW, ORDERS, Commands, commands, lines

AS_OF = str(NOW)


@pytest.fixture
def orders(tmp_path: Path) -> Commands:
    command = commands(tmp_path, ORDERS)
    command.json("publish", "ORDERS", stdin="\n".join(lines(48)))
    return command


def test_validate_says_what_each_stream_does(orders: Commands) -> None:
    assert orders.run("validate").stdout.startswith(
        "ORDERS: a message is removed 7 days after it was stored"
    )
    (entry,) = orders.json("validate")["streams"]
    assert entry["stream"] == "ORDERS"
    assert "7 days" in entry["meaning"]


def test_there_must_be_something_to_validate(tmp_path: Path) -> None:
    command = Commands(tmp_path)
    assert command.run("validate").exit_code == 2


def test_messages_have_the_contracts_keys_in_order(orders: Commands) -> None:
    printed = [
        json.loads(line)
        for line in orders.run("messages", "ORDERS", "--format", "jsonl").stdout.splitlines()
    ]
    assert [message["seq"] for message in printed] == list(range(1, 49))
    assert printed[0] == {
        "partition": 0,
        "segment": 1,
        "seq": 1,
        "subject": "orders.new",
        "ts_ns": NOW - 10 * 86_400 * 10**9,
        "headers_b64": None,
        "payload_b64": base64.b64encode(b"message 0").decode(),
        "size": printed[0]["size"],
        "msg_id": None,
        "origin_ts_ns": None,
        "operation": "put",
    }


def test_a_view_is_printed_as_lines_of_sql(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS, format="delta")
    command.json("publish", "ORDERS", stdin=lines(1)[0])
    head, first, *_, last = command.run("view", "ORDERS").stdout.splitlines()
    assert (head, first) == ("CREATE OR REPLACE VIEW `ORDERS` AS SELECT", "  seq,")
    assert last.endswith("messages`;")


def test_messages_are_selected(orders: Commands) -> None:
    def seqs(*arguments: object) -> list[int]:
        return [message["seq"] for message in orders.json("messages", "ORDERS", *arguments)]

    assert seqs("--last", 3) == [46, 47, 48]
    assert seqs("--from-seq", 47) == [47, 48]
    assert seqs("--subject", "orders.*", "--last", 1) == [48]
    assert seqs("--subject", "nothing") == []
    assert seqs("--partition", 1) == []
    assert orders.run("messages", "ORDERS", "--last", 0).exit_code == 2
    assert orders.run("messages", "ORDERS", "--subject", "a..b").exit_code == 2


def test_messages_for_people_show_time_subject_and_payload(orders: Commands) -> None:
    (line,) = orders.run("messages", "ORDERS", "--last", 1).stdout.splitlines()
    assert line.split()[:3] == ["48", "2027-01-07T07:00:00Z", "orders.new"]
    assert line.endswith("message 47")


def test_what_a_message_does_to_its_key_is_shown(tmp_path: Path) -> None:
    command = commands(tmp_path, {"name": "KV_B", "subjects": ["$KV.B.>"]})
    messages = [
        {"subject": "$KV.B.a", "data": "1"},
        {"subject": "$KV.B.b", "data": "2"},
        {"subject": "$KV.B.a", "headers": {"KV-Operation": "DEL"}},
    ]
    command.json("publish", "KV_B", stdin="\n".join(map(json.dumps, messages)))
    printed = command.json("messages", "KV_B")
    assert [message["operation"] for message in printed] == ["put", "put", "delete"]
    (line,) = command.run("messages", "KV_B", "--last", 1).stdout.splitlines()
    assert line.split()[2:4] == ["$KV.B.a", "delete"]
    bucket = {"name": "B", "keys": 2, "live_keys": 1, "deletions": 1}
    assert command.json("state")[0]["bucket"] == bucket
    head, row = command.run("state").stdout.splitlines()
    assert head.split()[-1] == "KEYS"
    assert row.rstrip().endswith("bucket B: 1 live key, 1 deleted")


def test_a_delete_marker_is_called_so(tmp_path: Path) -> None:
    settings = {"allow_msg_ttl": True, "subject_delete_marker_ttl": "1h"}
    command = commands(tmp_path, ORDERS | settings)
    command.json("publish", "ORDERS", stdin="\n".join(lines(2, first_ns=10**18)))
    command.json("apply", "--yes")
    (marker,) = command.json("messages", "ORDERS")
    assert (marker["seq"], marker["marker"], marker["operation"]) == (3, "MaxAge", "purge")
    (line,) = command.run("messages", "ORDERS").stdout.splitlines()
    assert "orders.new  delete marker (MaxAge)  " in line
    command.json("publish", "ORDERS", stdin="\n".join(lines(1)))
    assert "marker" not in command.json("messages", "ORDERS", "--last", 1)[0]


def test_a_message_is_explained(orders: Commands) -> None:
    goes = orders.json("explain", "ORDERS", 1, "--as-of", AS_OF)
    assert (goes["goes"], goes["rule"]) == (True, "max_age")
    said = orders.run("explain", "ORDERS", 1, "--as-of", AS_OF).stdout
    assert said.splitlines()[0] == goes["sentence"]
    assert orders.run("explain", "ORDERS", 49).exit_code == 2
    assert orders.run("explain", "NONE", 1).exit_code == 2
    assert orders.run("explain", "ORDERS", "one").exit_code == 2


def test_state_has_the_contracts_keys(orders: Commands) -> None:
    (state,) = orders.json("state", "ORDERS")
    wanted = ("stream", "messages", "bytes", "first_seq", "last_seq", "first_ts_ns", "last_ts_ns")
    assert state.keys() >= {*wanted, "num_subjects", "segments", "lag"}
    assert (state["messages"], state["num_subjects"], state["segments"]) == (48, 1, 2)


def test_state_for_people_is_a_row_a_stream(orders: Commands) -> None:
    head, row = orders.run("state").stdout.splitlines()
    assert head.split()[:3] == ["STREAM", "MESSAGES", "SIZE"]
    assert row.split()[:2] == ["ORDERS", "48"]


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        (200, set()),
        (110, {"SEGMENTS"}),
        (100, {"SEGMENTS", "SUBJECTS"}),
        (80, {"SEGMENTS", "SUBJECTS", "FROM"}),
        (60, {"SEGMENTS", "SUBJECTS", "FROM", "TO"}),
    ],
)
def test_state_fits_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, missing: set[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    command = commands(tmp_path, {"name": "ORDERS", "subjects": ["orders.>"]})
    command.json("publish", "ORDERS", stdin="\n".join(lines(48)))
    head, row = command.run("state").stdout.splitlines()
    assert max(len(head.rstrip()), len(row.rstrip())) <= columns
    words = {"STREAM", "MESSAGES", "SIZE", "FIRST", "LAST", "POLICY"}
    assert set(head.split()) == words | {"FROM", "TO", "SUBJECTS", "SEGMENTS"} - missing
    assert row.rstrip().endswith("up to date")


def test_state_in_a_very_narrow_terminal_is_set_upright(
    orders: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    head, *rows = orders.run("state").stdout.splitlines()
    assert (head, [row.split()[0] for row in rows][:2]) == ("ORDERS", ["MESSAGES", "SIZE"])


def test_what_is_due_has_a_view_of_its_own(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS, {"name": "ALL", "subjects": ["all.>"]})
    command.json("publish", "ORDERS", stdin="\n".join(lines(48, first_ns=10**18)))
    head, now, *later = command.run("state", "--due").stdout.splitlines()
    assert (head, now) == ("ORDERS", "  due now: 48 messages (2.33 KiB)")
    assert later == ["ALL", "  nothing is removed by time alone"]
    assert "due now" not in command.run("state").stdout


def test_state_of_an_unknown_stream_stops_no_other(orders: Commands) -> None:
    done = orders.run("state", "NONE", "ORDERS", "--format", "json")
    assert done.exit_code == 5
    missing, found = json.loads(done.stdout)
    assert missing["error"]["exit_code"] == 2
    assert found["messages"] == 48


@pytest.mark.parametrize(
    ("option", "key"), [("--writers", "writers"), ("--consumers", "consumers")]
)
def test_an_unknown_stream_stops_no_list(orders: Commands, option: str, key: str) -> None:
    done = orders.run("state", "NONE", "ORDERS", option, "--format", "json")
    assert done.exit_code == 5
    missing, found = json.loads(done.stdout)
    assert (key in missing, found[key]) == (False, type(found[key])())


def test_state_tells_the_last_batch_of_each_writer(orders: Commands) -> None:
    batch = "\n".join(lines(1))
    orders.json("publish", "ORDERS", "--writer", "loader", "--batch", 7, stdin=batch)
    orders.json("publish", "ORDERS", "--writer", "loader", "--batch", 9, stdin=batch)
    orders.json("publish", "ORDERS", "--writer", "another", "--batch", 1, stdin=batch)
    (state,) = orders.json("state", "ORDERS", "--writers")
    assert state["writers"] == {"another": 1, "loader": 9}
    *_, head, first, second = orders.run("state", "ORDERS", "--writers").stdout.splitlines()
    assert head.split() == ["STREAM", "WRITER", "LAST", "BATCH"]
    assert [first.split(), second.split()] == [
        ["ORDERS", "another", "1"],
        ["ORDERS", "loader", "9"],
    ]


def test_an_import_is_no_writer_of_peoples(tmp_path: Path) -> None:
    command = commands(tmp_path / "w", {"name": "A", "subjects": ["orders.>"]})
    command.json("import", "nats-backup", backup(tmp_path / "A.arc"))
    assert command.json("state", "A", "--writers")[0]["writers"] == {}


def test_a_killed_run_that_took_nothing_counts_nothing(orders: Commands) -> None:
    history = history_of(str(orders.folder), "ORDERS")
    run = history.name_run(NOW)
    killed = run_record(run, as_of_ns=NOW, removed_messages=48, removed_bytes=9)
    history.begin(killed)
    history.finish(killed.updated(status="abandoned"))
    _, row = orders.run("history").stdout.splitlines()
    assert "apply, abandoned" in row
    assert row.split()[-3:] == ["0", "0", "B"]


def test_history_lists_runs_newest_first(orders: Commands) -> None:
    assert "no run has finished yet" in orders.run("history").stderr
    assert orders.json("history") == []
    lifted = ("--yes", "--allow-future")
    run = orders.json("apply", "--as-of", AS_OF, *lifted)["streams"][0]["run"]
    undo = orders.json("undo", run)["run"]
    assert [record["run"] for record in orders.json("history", "ORDERS")] == [undo, run]
    head, newest, oldest = orders.run("history").stdout.splitlines()
    assert head.split()[0] == "RUN"
    assert f"undo of {run}" in newest
    assert "+48" in newest
    assert "-48" in oldest
    assert orders.run("history", "NONE").exit_code == 2


def test_nothing_to_show_is_said(tmp_path: Path) -> None:
    command = commands(tmp_path)
    assert "no streams: publish or import" in command.run("state").stderr
    assert command.json("state") == []
    assert command.json("plan")["streams"] == []
