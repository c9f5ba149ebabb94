from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from retention.core import headers, message_rows
from retention.schemas.deadlines import NEVER
from retention.schemas.messages import FILE_COLUMNS

EIGHTEEN_BYTES = b"NATS/1.0\r\nA: b\r\n\r\n"


def raw(*messages: dict[str, Any]) -> pa.Table:
    given = [{"headers": None, "ts_ns": 1_500, **message} for message in messages]
    columns = [("subject", pa.string()), ("headers", pa.binary()), ("payload", pa.binary())]
    known = [(name, pa.int64()) for name in ("seq", "ts_ns", "origin_ts_ns") if name in given[0]]
    return pa.Table.from_pylist(given, schema=pa.schema([*columns, *known]))


@pytest.mark.parametrize(
    ("subject", "payload", "block", "file", "memory"),
    [
        ("sz.a", b"hello", None, 39, 25),
        ("sz.a", b"", None, 34, 20),
        ("sz.a", None, b"", 34, 20),
        ("sz.a", b"hello", EIGHTEEN_BYTES, 61, 43),
        ("sz.é", b"hello", None, 40, 26),
    ],
)
def test_sizes_are_the_brokers_for_each_storage(
    subject: str, payload: bytes | None, block: bytes | None, file: int, memory: int
) -> None:
    table = raw({"subject": subject, "payload": payload, "headers": block})
    assert message_rows.complete_rows(table, "file")["size"].to_pylist() == [file]
    assert message_rows.complete_rows(table, "memory")["size"].to_pylist() == [memory]


def test_rows_with_sequences_have_exactly_the_columns_of_a_data_file() -> None:
    table = raw({"subject": "a", "payload": b"x", "seq": 7, "origin_ts_ns": 3})
    done = message_rows.complete_rows(table, "file")
    assert done.schema == FILE_COLUMNS
    assert done.to_pylist()[0]["seq"] == 7
    assert done.to_pylist()[0]["origin_ts_ns"] == 3


def test_rows_without_sequences_lack_only_that_column() -> None:
    done = message_rows.complete_rows(raw({"subject": "a", "payload": b"x"}), "file")
    assert done.schema == FILE_COLUMNS.remove(0)
    assert done["origin_ts_ns"].null_count == 1
    assert (
        message_rows.complete_rows(raw({"subject": "a", "payload": b"x"}).slice(1), "file").num_rows
        == 0
    )


def test_empty_payloads_are_empty_and_empty_header_blocks_are_none() -> None:
    done = message_rows.complete_rows(
        raw({"subject": "a", "payload": None, "headers": b""}), "file"
    )
    assert done["payload"].to_pylist() == [b""]
    assert done["headers"].to_pylist() == [None]


def test_time_is_the_instant_cut_down_to_microseconds_also_before_1970() -> None:
    table = raw({"subject": "a", "payload": b"", "ts_ns": -1}, {"subject": "a", "payload": b""})
    assert message_rows.complete_rows(table, "file")["time"].cast(pa.int64()).to_pylist() == [-1, 1]


def test_what_the_headers_say_stands_in_columns() -> None:
    block = headers.build([("Nats-Msg-Id", "id"), ("Nats-TTL", "never"), ("KV-Operation", "PURGE")])
    table = raw(
        {"subject": "a", "payload": b"", "headers": block}, {"subject": "b", "payload": b""}
    )
    done = (
        message_rows.complete_rows(table, "file")
        .select(["deadline_ns", "marker", "msg_id"])
        .to_pylist()
    )
    assert done[0] == {"deadline_ns": NEVER, "marker": True, "msg_id": "id"}
    assert done[1] == {"deadline_ns": None, "marker": False, "msg_id": None}
