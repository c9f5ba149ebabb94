from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from retention.core import message_rows
from retention.errors import UsageError
from retention.formats import jsonl
from retention.formats.printed_lines import message_lines
from retention.schemas.messages import MESSAGES


def parsed(*lines: dict[str, Any] | str | bytes, now_ns: int = 5) -> list[dict[str, Any]]:
    given = [json.dumps(line) if isinstance(line, dict) else line for line in lines]
    return jsonl.parse_messages(given, now_ns).to_pylist()


def test_a_byte_order_mark_is_no_part_of_a_line() -> None:
    line = b'\xef\xbb\xbf{"subject":"a"}'
    assert parsed(line, line.decode(), b"\xef\xbb\xbf\n") == parsed(
        '{"subject":"a"}', '{"subject":"a"}'
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"subject":"a"}'.encode("utf-16"), "begins as UTF-16; write it in UTF-8"),
        ('{"subject":"a"}'.encode("utf-32"), "begins as UTF-32; write it in UTF-8"),
        (b'{"subject":"\xe9"}', r"is not UTF-8 \(byte 0xe9 at position 12\); write it in UTF-8"),
    ],
)
def test_another_encoding_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(UsageError, match=f"line 1: {reason}; nothing was stored"):
        parsed(line)


def test_a_line_becomes_a_message_with_the_time_given_or_now() -> None:
    first, second = parsed(
        {"subject": "a", "data": "é", "ts_ns": -7}, b'{"subject":"b","data_b64":"/w=="}\r\n'
    )
    assert first == {
        "subject": "a",
        "headers": None,
        "payload": "é".encode(),
        "ts_ns": -7,
        "origin_ts_ns": None,
        "line": 1,
    }
    assert second == first | {"subject": "b", "payload": b"\xff", "ts_ns": 5, "line": 2}


def test_empty_lines_are_passed_over_but_counted() -> None:
    assert [
        row["line"] for row in parsed("", "  \n", {"subject": "a"}, b"\n", {"subject": "b"})
    ] == [3, 5]
    assert jsonl.parse_messages([], 5).schema == jsonl.PUBLISHED


@pytest.mark.parametrize(
    "given",
    [
        [["A", "1"], ["B", "x"], ["B", "y"]],
        {"A": "1", "B": ["x", "y"]},
        {"A": ["1"], "B": ["x", "y"]},
    ],
)
def test_headers_are_pairs_or_an_object(given: Any) -> None:
    block = b"NATS/1.0\r\nA: 1\r\nB: x\r\nB: y\r\n\r\n"
    assert parsed({"subject": "a", "headers": given})[0]["headers"] == block


@pytest.mark.parametrize("given", [[], {}, {"A": []}])
def test_empty_headers_are_none(given: Any) -> None:
    assert parsed({"subject": "a", "headers": given})[0]["headers"] is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ('{"subject": "a"} x', "Extra data at column 18"),
        ("[" * 100_000, "recursion"),
        ("[]", "not a JSON object"),
        ("{}", "subject is required"),
        ('{"subject": ""}', "subject is required"),
        ('{"subject": 1}', "subject is required"),
        ('{"subject": "a", "payload": "x"}', "unknown key payload"),
        ('{"subject": "a", "subject": "b"}', "key subject occurs twice in one object"),
        ('{"subject": "a", "headers": {"A": "1", "A": "2"}}', "key A occurs twice in one object"),
        ('{"subject": "a", "data": 1}', "data must be text"),
        ('{"subject": "a", "data": null}', "data must be text"),
        ('{"subject": "a", "data": "\\ud800"}', "surrogates not allowed"),
        ('{"subject": "\\ud800"}', "surrogates not allowed"),
        ('{"subject": "a", "data": "", "data_b64": ""}', "exclude each other"),
        ('{"subject": "a", "data_b64": "a"}', "not base64"),
        ('{"subject": "a", "data_b64": "YQ==YQ=="}', "not base64"),
        ('{"subject": "a", "data_b64": "Y Q=="}', "not base64"),
        ('{"subject": "a", "data_b64": 1}', "data_b64 must be text"),
        ('{"subject": "a", "ts_ns": 1.5}', "ts_ns must be an integer"),
        ('{"subject": "a", "ts_ns": true}', "ts_ns must be an integer"),
        ('{"subject": "a", "ts_ns": 9223372036854775808}', "is outside 1677-09-21 to"),
        ('{"subject": "a", "headers": "A: b"}', "headers must be pairs"),
        ('{"subject": "a", "headers": [["A"]]}', "headers must be pairs"),
        ('{"subject": "a", "headers": {"A": 1}}', "headers must be pairs"),
        ('{"subject": "a", "headers": {"A:": "1"}}', "not valid as a header"),
        ('{"subject": "a", "headers": {"A": "1\\r\\n"}}', "not valid as a header"),
        (b'{"subject": "\xff"}', "is not UTF-8 (byte 0xff at position 13)"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(line: str | bytes, problem: str) -> None:
    with pytest.raises(UsageError, match="line 3: ") as refused:
        parsed({"subject": "a"}, "", line)
    assert problem in str(refused.value)


def test_messages_are_printed_with_the_documented_keys_in_order_and_read_back() -> None:
    raw = jsonl.parse_messages(
        [
            '{"subject": "a.é", "data_b64": "/w==", "headers": {"Nats-Msg-Id": "7"}}',
            '{"subject": "b"}',
        ],
        5,
    )
    complete = message_rows.complete_rows(raw, "file")
    extra = {"partition": [0, 0], "segment": [1, 1], "seq": [1, 2]}
    columns = [
        pa.array(extra[name]) if name in extra else complete[name] for name in MESSAGES.names
    ]
    lines = list(message_lines(pa.table(columns, names=MESSAGES.names)))
    assert json.loads(lines[0]) == {
        "partition": 0,
        "segment": 1,
        "seq": 1,
        "subject": "a.é",
        "ts_ns": 5,
        "headers_b64": "TkFUUy8xLjANCk5hdHMtTXNnLUlkOiA3DQoNCg==",
        "payload_b64": "/w==",
        "size": 34 + 4 + 28 + 1,
        "msg_id": "7",
        "origin_ts_ns": None,
        "operation": "put",
    }
    second = json.loads(lines[1])
    assert list(second) == list(json.loads(lines[0]))
    assert (second["headers_b64"], second["payload_b64"], second["msg_id"]) == (None, "", None)
    assert jsonl.parse_messages(lines, 77).drop(["line"]) == raw.drop(["line"])


PRINTED = {
    "partition": 3,
    "segment": 8,
    "seq": 9,
    "subject": "a",
    "ts_ns": 5,
    "headers_b64": "TkFUUy8xLjANCk5hdHMtTXNnLUlkOiA3DQoNCg==",
    "payload_b64": "/w==",
    "size": 70,
    "msg_id": "7",
    "origin_ts_ns": 4,
    "operation": "put",
    "marker": "MaxAge",
}


def test_a_printed_line_is_published_without_its_place() -> None:
    [message] = parsed(PRINTED)
    block = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"
    assert (message["subject"], message["headers"]) == ("a", block)
    assert (message["payload"], message["ts_ns"], message["origin_ts_ns"]) == (b"\xff", 5, 4)
    bare = {"subject": "a", "payload_b64": "", "headers_b64": None, "msg_id": None}
    assert parsed(bare)[0]["payload"] == b""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"msg_id": "8"}, "msg_id is not the Nats-Msg-Id of its headers; give the id there"),
        ({"headers_b64": None}, "msg_id is not the Nats-Msg-Id of its headers"),
        ({"headers_b64": "eA=="}, "not a header block"),
        ({"payload_b64": "x"}, "is not base64"),
        ({"data": "x"}, "data and data_b64 exclude each other"),
        ({"headers": {}}, "headers and headers_b64 exclude each other"),
        ({"seqq": 1}, "unknown key seqq"),
        ({"origin_ts_ns": "x"}, "origin_ts_ns must be an integer"),
    ],
)
def test_a_printed_line_that_was_changed_is_read_as_strictly(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match="line 1: ") as refused:
        parsed(PRINTED | change)
    assert problem in str(refused.value)


@pytest.mark.parametrize("key", ["seq", "partition", "msg_id", "size"])
def test_what_was_not_printed_has_no_place(key: str) -> None:
    with pytest.raises(UsageError, match=f"unknown key {key}"):
        parsed({"subject": "a", key: 1})
