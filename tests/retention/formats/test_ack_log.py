from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from retention.consumers.replies import VERBS, parse
from retention.errors import UsageError
from retention.formats.ack_log import LOG, read_ack_log, replies_and_bodies

REPLY = "$JS.ACK.ORDERS.billing.1.7.7.10.0"
LINES: list[dict[str, Any]] = [
    {"reply": REPLY},
    {"subject": REPLY},
    {"subject": REPLY, "data": ""},
    {"subject": REPLY, "data": "-NAK"},
    {"subject": REPLY, "data": "+TERM no such order é"},
]


def written(path: Path, lines: list[dict[str, Any]] | str) -> Path:
    text = lines if isinstance(lines, str) else "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text)
    return path


def verbs_of(log: pa.Table) -> list[str]:
    acks, malformed = parse(*replies_and_bodies(log))
    assert malformed == []
    return [VERBS[code].as_py() for code in acks["verb"].to_pylist()]


MEANT = ["delivered", "ack", "ack", "nak", "term"]


def test_json_lines_are_read_in_their_order(tmp_path: Path) -> None:
    log = read_ack_log(written(tmp_path / "acks.jsonl", LINES))
    assert log.schema == LOG
    assert verbs_of(log) == MEANT


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_parquet_is_read_whatever_its_kind_of_text(tmp_path: Path, kind: pa.DataType) -> None:
    rows = pa.Table.from_pylist(LINES, schema=read_schema(kind))
    parquet.write_table(rows, tmp_path / "acks.parquet")
    assert verbs_of(read_ack_log(tmp_path / "acks.parquet")) == MEANT


def read_schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("subject", pa.string()), ("data", kind), ("reply", pa.string())])


def test_columns_that_parquet_lacks_are_empty_and_others_are_left(tmp_path: Path) -> None:
    rows = pa.table({"time": [1, 2], "subject": [REPLY, REPLY]})
    parquet.write_table(rows, tmp_path / "acks.parquet")
    assert verbs_of(read_ack_log(tmp_path / "acks.parquet")) == ["ack", "ack"]


def test_an_empty_file_is_an_empty_log(tmp_path: Path) -> None:
    log = read_ack_log(written(tmp_path / "acks.jsonl", ""))
    assert log == LOG.empty_table()
    assert verbs_of(log) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("acks.jsonl", "{"),
        ("acks.jsonl", '{"subject": 7}\n'),
        ("acks.jsonl", '{"subject": "a", "body": "+ACK"}\n'),
        ("acks.parquet", '{"subject": "a"}\n'),
        ("acks.parquet", ""),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} cannot be read as a log of acks"):
        read_ack_log(written(tmp_path / name, text))


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere cannot be read as a log of acks"):
        read_ack_log(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "line",
    [{"data": "+ACK"}, {"subject": REPLY, "reply": REPLY}, {"reply": REPLY, "data": "+ACK"}],
)
def test_a_line_must_be_an_ack_or_a_delivery(tmp_path: Path, line: dict[str, str]) -> None:
    log = read_ack_log(written(tmp_path / "acks.jsonl", [LINES[1], LINES[0], line]))
    with pytest.raises(UsageError, match="line 3 of the log is"):
        replies_and_bodies(log)
