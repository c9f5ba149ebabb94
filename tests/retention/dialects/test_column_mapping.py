"""The pure part of a column mapping: the chosen order, omitted columns, and refusals."""

from __future__ import annotations

import pytest

from retention.config import StreamConfig
from retention.dialects.column_mapping import ColumnMapping, default_order, time_candidates
from retention.dialects.jetstream import JetStream
from retention.errors import UsageError

DIALECT = JetStream.of(StreamConfig(name="ORDERS", subjects=("orders.>",)))


@pytest.mark.parametrize(
    ("columns", "order"),
    [
        (["kafka_partition", "kafka_offset", "seq"], ("kafka_offset", "kafka_partition")),
        (["Offset", "Partition"], ("Offset", "Partition")),
        (["offset", "kafka_offset", "partition"], ("kafka_offset", "partition")),
        (["seq"], ("seq",)),
        (["_commit_version", "id"], ("_commit_version",)),
        (["partition", "id"], ()),
        ([], ()),
    ],
)
def test_an_offset_decides_before_its_partition(columns: list[str], order: tuple[str, ...]) -> None:
    assert default_order(columns) == order


def test_a_column_is_left_out_if_nothing_names_it() -> None:
    mapping = ColumnMapping(
        {"subject": "concat('note.', who)", "time": "At"}, where="`odd name` > 1", tombstone="x.y"
    )
    names = ["who", "at", "note", "odd name", "x", "y", "n b", "payload", "subject", "time"]
    assert mapping.left_out(names, DIALECT, ["n b"]) == ["note", "subject", "time"]
    assert ColumnMapping(whole_row=True).left_out(names, DIALECT, []) == []


def test_columns_that_look_like_times_are_candidates() -> None:
    others = ["created_at", "id", "ts", "eventTime", "late", "amount", "ts_ms", "format", "updated"]
    assert time_candidates(["day"], others) == [
        *("day", "created_at", "ts", "eventTime", "ts_ms", "updated")
    ]


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (ColumnMapping({"key": "k"}), "key: no such column; there are subject"),
        (ColumnMapping({"payload": " "}), "--column payload: it needs an SQL expression"),
        (ColumnMapping({"payload": "x"}, whole_row=True), "are two payloads; nothing was read"),
    ],
)
def test_what_cannot_be_said_is_refused(mapping: ColumnMapping, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        mapping.check(DIALECT)
