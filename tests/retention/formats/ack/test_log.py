from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from retention.consumers.ack_subject import VERBS, parse
from retention.errors import UsageError
from retention.formats.ack import sources
from retention.formats.ack.log import (
    LOG,
    AckLog,
    parse_slice,
    read_slice,
    replies_and_bodies,
    tail_digest,
)
from retention.formats.ack.sources import open_log

REPLY = "$JS.ACK.ORDERS.billing.1.7.7.10.0"
LINES: list[dict[str, Any]] = [
    {"reply": REPLY},
    {"subject": REPLY},
    {"subject": REPLY, "data": ""},
    {"subject": REPLY, "data": "-NAK"},
    {"subject": REPLY, "data": "+TERM no such order é"},
]


def read_ack_log(path: Path) -> pa.Table:
    log = open_log(str(path))
    parts = [read_slice(log_slice) for log_slice in log.between(0, log.rows)]
    return pa.concat_tables([LOG.empty_table(), *parts])


def written(path: Path, lines: list[dict[str, Any]] | str) -> Path:
    text = lines if isinstance(lines, str) else "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text)
    return path


def verbs_of(log: pa.Table) -> list[str]:
    acks, malformed = parse(*replies_and_bodies(log))
    assert malformed == []
    return [VERBS[code] for code in acks["verb"].to_pylist()]


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
        ("acks.jsonl", "{\n"),
        ("acks.jsonl", '{"subject": "a"}\n\n'),
        ("acks.jsonl", '{"subject": "a"} {"subject": "b"}\n'),
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


SAID = [f"$JS.ACK.ORDERS.billing.1.{number}.{number}.10.0" for number in range(1, 41)]
MANY = [{"subject": reply, "data": "+ACK"} for reply in SAID]


def seqs(log: AckLog, first: int, end: int) -> list[int]:
    parsed = [parse_slice(log_slice) for log_slice in log.between(first, end)]
    rows = [row for part in parsed for row in part.acks["row"].to_pylist()]
    assert rows == list(range(first, end))
    return [seq for part in parsed for seq in part.acks["seq"].to_pylist()]


def as_json(folder: Path) -> Path:
    return written(folder / "acks.jsonl", MANY)


def as_row_groups(folder: Path) -> Path:
    rows = pa.Table.from_pylist(MANY)
    parquet.write_table(rows, folder / "acks.parquet", row_group_size=7)
    return folder / "acks.parquet"


def as_directory(folder: Path) -> Path:
    inside = folder / "acks"
    inside.mkdir()
    written(inside / "1.jsonl", MANY[:11])
    parquet.write_table(pa.Table.from_pylist(MANY[11:30]), inside / "2.parquet")
    written(inside / "3.jsonl", MANY[30:])
    (inside / "_SUCCESS").write_text("")
    written(inside / "_copying.jsonl", MANY)
    return inside


def as_delta(folder: Path) -> Path:
    for begin in (0, 11, 30):
        end = {0: 11, 11: 30, 30: 40}[begin]
        write_deltalake(folder / "acks", pa.Table.from_pylist(MANY[begin:end]), mode="append")
    return folder / "acks"


@pytest.mark.parametrize("write", [as_json, as_row_groups, as_directory, as_delta])
def test_any_lines_of_a_log_come_in_order(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PART_BYTES", 200)
    log = open_log(str(write(tmp_path)))
    assert log.rows == len(MANY)
    assert len(log.parts) > 2
    for first, end in ((0, 40), (0, 1), (5, 31), (39, 40), (11, 11)):
        assert seqs(log, first, end) == list(range(first + 1, end + 1))
    assert tail_digest(log, 20) == tail_digest(
        open_log(str(written(tmp_path / "x.jsonl", MANY[:20]))), 20
    )
    assert tail_digest(log, 20) != tail_digest(log, 19)


def test_a_last_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    whole = "".join(json.dumps(line) + "\n" for line in MANY[:3])
    for end in (1, 20, 40, len(json.dumps(MANY[3])) - 1):
        log = open_log(str(written(tmp_path / "acks.jsonl", whole + json.dumps(MANY[3])[:end])))
        assert seqs(log, 0, log.rows) == [1, 2, 3]
    log = open_log(str(written(tmp_path / "acks.jsonl", whole + json.dumps(MANY[3]))))
    assert seqs(log, 0, log.rows) == [1, 2, 3, 4]


def test_a_wrong_line_is_named_by_its_place_in_the_log(tmp_path: Path) -> None:
    path = written(tmp_path / "acks.jsonl", [*MANY[:9], {"data": "+ACK"}])
    [slice_] = open_log(str(path)).between(7, 10)
    with pytest.raises(UsageError, match=r"line 10 of .*acks\.jsonl is"):
        parse_slice(slice_)


def test_a_delta_table_of_which_rows_were_deleted_is_another_log(tmp_path: Path) -> None:
    table = DeltaTable(as_delta(tmp_path))
    assert open_log(str(tmp_path / "acks")).rows == len(MANY)
    table.delete(f"subject = '{SAID[4]}'")
    log = open_log(str(tmp_path / "acks"))
    assert tail_digest(log, 11) != tail_digest(open_log(str(as_json(tmp_path))), 11)


def test_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nor a directory with files"):
        open_log(str(tmp_path))
