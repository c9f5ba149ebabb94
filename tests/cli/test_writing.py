from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pytest

from retention.core.message_rows import message_sizes
from retention.formats.nats.backup import RAW_ROWS, write_backup
from tests.support.sandboxes import NOW, ORDERS, Commands, commands, lines


@pytest.fixture
def orders(tmp_path: Path) -> Commands:
    return commands(tmp_path, {**ORDERS, "max_msg_size": 1000})


def answers(
    command: Commands, *arguments: object, stdin: str | None = None
) -> list[dict[str, object]]:
    done = command.run("--format", "jsonl", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_line_is_acknowledged(orders: Commands) -> None:
    acks = answers(orders, "publish", "ORDERS", stdin="\n".join(lines(2)))
    assert acks == [{"stream": "ORDERS", "seq": seq, "duplicate": False} for seq in (1, 2)]


def test_a_file_is_published(orders: Commands, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text("\n".join(lines(3)), encoding="utf-8")
    done = orders.run("publish", "ORDERS", tmp_path / "lines.jsonl")
    assert done.stdout == "ORDERS: 3 messages stored as 1 to 3\n"
    missing = orders.run("publish", "ORDERS", tmp_path / "missing.jsonl")
    assert missing.exit_code == 2


def test_a_batch_is_written_once(orders: Commands) -> None:
    batch = ("publish", "ORDERS", "-", "--writer", "w", "--batch", 7)
    assert len(answers(orders, *batch, stdin="\n".join(lines(3)))) == 3
    repeated = {"stream": "ORDERS", "batch": 7, "duplicate": True}
    assert answers(orders, *batch, stdin="\n".join(lines(3))) == [repeated]
    assert "is already present" in orders.run(*batch, stdin="\n".join(lines(3))).stdout
    assert orders.json("state")[0]["messages"] == 3


def test_a_retry_after_a_pass_does_not_bring_an_old_value_back(tmp_path: Path) -> None:
    orders = commands(tmp_path, {**ORDERS, "max_msgs_per_subject": 1})
    old, new = (
        json.dumps({"subject": "orders.a", "data": data, "headers": {"Nats-Msg-Id": data}})
        for data in ("old", "new")
    )
    answers(orders, "publish", "ORDERS", stdin=f"{old}\n{new}")
    assert orders.run("apply", "--yes").exit_code == 0
    again = answers(orders, "publish", "ORDERS", stdin=old)
    assert again == [{"stream": "ORDERS", "seq": 1, "duplicate": True}]
    assert orders.run("apply", "--yes").exit_code == 0
    [left] = answers(orders, "messages", "ORDERS")
    assert left["msg_id"] == "new"


def test_a_batch_without_a_writer_is_a_usage_error(orders: Commands) -> None:
    assert orders.run("publish", "ORDERS", "--batch", 7, stdin="").exit_code == 2


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ('{"data": "x"}', 2, "subject is required"),
        ('{"subject": "orders..x"}', 2, "orders..x"),
        ("not json", 2, "it is not JSON"),
        (json.dumps({"subject": "orders.x", "data": "x" * 2000}), 4, "10054"),
        ('{"subject": "elsewhere"}', 4, "elsewhere"),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_the_batch_is_written(
    orders: Commands, line: str, code: int, why: str
) -> None:
    done = orders.run("publish", "ORDERS", stdin="\n".join([*lines(2), line]))
    assert (done.exit_code, done.stdout) == (code, "")
    assert "line 3" in done.stderr
    assert why in done.stderr
    assert orders.json("state")[0]["messages"] == 0


def test_publishing_creates_a_stream_that_nobody_listed(tmp_path: Path) -> None:
    command = commands(tmp_path)
    command.json("publish", "NEW.STREAM".replace(".", "_"), stdin="\n".join(lines(1)))
    assert command.json("state")[0]["stream"] == "NEW_STREAM"
    assert command.run("publish", "no good", stdin="").exit_code == 2


def backup(file: Path, first_seq: int = 5, stated: int = 2) -> Path:
    rows = pa.table(
        {
            "seq": [first_seq, first_seq + 2],
            "subject": ["orders.a", "orders.b"],
            "ts_ns": [NOW - 2, NOW - 1],
            "headers": [None, b"NATS/1.0\r\nA: b\r\n\r\n"],
            "payload": [b"one", b""],
        },
        schema=RAW_ROWS,
    )
    held = sum(message_sizes(rows["subject"], rows["headers"], rows["payload"], "file").to_pylist())
    state = {"messages": stated, "bytes": held, "first_seq": first_seq, "last_seq": first_seq + 3}
    write_backup(file, state, {}, [rows])
    return file


def test_a_backup_is_imported_once_under_its_own_name(tmp_path: Path) -> None:
    command = commands(tmp_path / "w")
    file = backup(tmp_path / "ORDERS.arc")
    assert (
        "2 messages imported, sequences 5 to 8" in command.run("import", "nats-backup", file).stdout
    )
    assert "was imported before" in command.run("import", "nats-backup", file).stdout
    (state,) = command.json("state")
    assert (state["stream"], state["messages"], state["first_seq"], state["last_seq"]) == (
        "ORDERS",
        2,
        5,
        8,
    )
    first, second = answers(command, "messages", "ORDERS")
    assert (first["headers_b64"], first["payload_b64"]) == (None, base64.b64encode(b"one").decode())
    assert second["headers_b64"] == base64.b64encode(b"NATS/1.0\r\nA: b\r\n\r\n").decode()


def test_what_went_while_a_backup_was_made_is_said(tmp_path: Path) -> None:
    command = commands(tmp_path / "w")
    file = backup(tmp_path / "ORDERS.arc", stated=4)
    refused = command.run("import", "nats-backup", "--strict", file)
    assert refused.exit_code == 6
    assert "messages is 4 in state.json and 2 in the archive" in refused.stderr
    assert "without --strict" in refused.stderr
    done = command.run("import", "nats-backup", file)
    assert done.stdout == (
        "ORDERS: 2 messages imported, sequences 5 to 8; imported as a server restores it, although the "
        "server's account differs: messages is 4 in state.json and 2 in the archive\n"
    )
    (entry,) = answers(command, "import", "nats-backup", file)
    assert (entry["already"], entry["messages"]) == (True, 2)
    assert entry["differences"] == [{"name": "messages", "stated": 4, "held": 2}]


def test_a_backup_can_be_given_another_name(tmp_path: Path) -> None:
    command = commands(tmp_path / "w")
    entries = answers(command, "import", "nats-backup", backup(tmp_path / "x.arc"), "--stream", "Y")
    assert [entry["stream"] for entry in entries] == ["Y"]


def test_one_damaged_backup_stops_no_other(tmp_path: Path) -> None:
    command = commands(tmp_path / "w")
    good, bad = backup(tmp_path / "GOOD.arc"), tmp_path / "BAD.arc"
    bad.write_bytes(good.read_bytes()[:-40])
    done = command.run("import", "nats-backup", bad, good)
    assert done.exit_code == 5
    assert "GOOD: 2 messages imported" in done.stdout
    assert str(bad) in done.stderr
    assert command.run("import", "nats-backup", bad).exit_code == 6


def test_a_stream_that_holds_something_else_is_not_imported_into(tmp_path: Path) -> None:
    command = commands(tmp_path / "w")
    command.json("publish", "ORDERS", stdin="\n".join(lines(1)))
    assert command.run("import", "nats-backup", backup(tmp_path / "ORDERS.arc")).exit_code == 4


def test_names_must_be_clear(tmp_path: Path) -> None:
    command = commands(tmp_path / "w")
    (tmp_path / "other").mkdir()
    one, two = backup(tmp_path / "A.arc"), backup(tmp_path / "other" / "A.arc")
    assert command.run("import", "nats-backup", one, two, "--stream", "X").exit_code == 2
    assert command.run("import", "nats-backup", one, two).exit_code == 2


HEADERS = {"Nats-Msg-Id": "7", "KV-Operation": "DEL", "A": "é", "Nats-TTL": "never"}


def test_what_messages_prints_is_published_again_as_equal_messages(tmp_path: Path) -> None:
    taken = {"name": "ORDERS", "subjects": ["a.*", "b", "c", "gone"], "allow_msg_ttl": True}
    one, two = commands(tmp_path / "one", taken), commands(tmp_path / "two", taken)
    given = [
        {"subject": "a.é", "data_b64": "/wA=", "headers": HEADERS, "ts_ns": NOW},
        {"subject": "b", "data": "", "ts_ns": NOW - 1},
        {"subject": "gone", "ts_ns": NOW},
        {"subject": "c", "data": "x" * 5000, "headers": [["A", "1"], ["A", "2"]], "ts_ns": NOW + 7},
    ]
    one.json("publish", "ORDERS", stdin="\n".join(map(json.dumps, given)))
    one.json("delete", "ORDERS", 3, "--yes")
    printed = one.run("--format", "jsonl", "messages", "ORDERS").stdout
    two.json("publish", "ORDERS", stdin=printed)
    before, after = (
        [json.loads(line) for line in text.splitlines()]
        for text in (printed, two.run("--format", "jsonl", "messages", "ORDERS").stdout)
    )
    assert [message["seq"] for message in before] == [1, 2, 4]
    assert after == [message | {"seq": seq} for seq, message in enumerate(before, start=1)]
    again = answers(two, "publish", "ORDERS", stdin=printed)
    assert [answer["duplicate"] for answer in again] == [True, False, False]


def test_what_messages_prints_of_a_topic_is_published_again(tmp_path: Path) -> None:
    for name, topic in (("one", "clicks"), ("two", "others")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "retention.yaml").write_text(
            json.dumps({"warehouse": ".", "topics": [{"name": topic, "partitions": 3}]}),
            encoding="utf-8",
        )
    one, two = Commands(tmp_path / "one"), Commands(tmp_path / "two")
    typed = {"text": "é", "number": 5, "raw": {"kind": "uint32", "value": "AQAAAA=="}}
    given = [
        {"data_b64": "/wA=", "partition": 2, "headers": typed, "id": str(2**100)},
        {"data": "x", "key": "k", "origin_ts_ns": NOW},
        {"data": "y"},
    ]
    one.json("publish", "clicks", stdin="\n".join(map(json.dumps, given)))
    printed = one.run("--format", "jsonl", "messages", "clicks").stdout
    two.json("publish", "others", stdin=printed)
    before, after = (
        [json.loads(line) for line in text.splitlines()]
        for text in (printed, two.run("--format", "jsonl", "messages", "others").stdout)
    )
    assert len(before) == 3
    given_anew = ("ts_ns", "subject")
    for old, new in zip(before, after, strict=True):
        assert {**old, **{name: new[name] for name in given_anew}} == new
