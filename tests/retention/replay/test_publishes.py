from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from retention.config.stream import StreamConfig
from retention.core import headers
from retention.core.message_rows import complete_rows
from retention.core.units import SECOND
from retention.replay.publishes import publishes_of
from retention.rules.replay.publishes import Expectation, Publishes
from retention.schemas.deadlines import NEVER

TS_NS = 1_800_000_000 * SECOND


def published(
    *messages: tuple[str, dict[str, str]], payload: bytes = b"12345", **settings: Any
) -> Publishes:
    blocks = [headers.build(given.items()) or None for _, given in messages]
    raw = pa.table(
        {
            "seq": pa.array(range(1, len(messages) + 1), pa.int64()),
            "subject": [subject for subject, _ in messages],
            "ts_ns": pa.array([TS_NS] * len(messages), pa.int64()),
            "headers": pa.array(blocks, pa.binary()),
            "payload": pa.array([payload] * len(messages), pa.binary()),
        }
    )
    config = StreamConfig(name="S", subjects=("s.>",), **settings)
    return publishes_of(complete_rows(raw, "file"), "file", config)


@pytest.mark.parametrize(
    ("given", "settings", "early", "late"),
    [
        ({}, {}, 0, 0),
        ({}, {"max_msg_size": 4}, 10054, 0),
        ({}, {"max_msg_size": 5}, 0, 0),
        ({"Nats-TTL": "5"}, {}, 10166, 0),
        ({"Nats-TTL": "soon"}, {}, 0, 10165),
        ({"Nats-TTL": "5"}, {"allow_msg_ttl": True}, 0, 0),
        ({"Nats-TTL": "00"}, {}, 0, 0),
        ({"Nats-Rollup": "sub"}, {}, 0, 10111),
        ({"Nats-Rollup": "some", "Nats-TTL": "soon"}, {"allow_rollup_hdrs": True}, 0, 10111),
        ({"Nats-Rollup": "ALL"}, {"allow_rollup_hdrs": True}, 0, 0),
        ({"Nats-Expected-Stream": "T"}, {}, 10060, 0),
        ({"Nats-Expected-Stream": "S"}, {}, 0, 0),
    ],
)
def test_a_message_is_refused_as_when_it_was_published(
    given: dict[str, str], settings: dict[str, Any], early: int, late: int
) -> None:
    [row] = published(("s.a", given), **settings).rows.to_pylist()
    assert (row["early"], row["late"]) == (early, late)


def test_a_foreign_subject_reaches_no_stream() -> None:
    rows = published(("t.a", {}), ("s.a", {})).rows
    assert rows["early"].to_pylist() == [-1, 0]


def test_sizes_are_those_of_the_servers_storage() -> None:
    messages: list[tuple[str, dict[str, str]]] = [("s.a", {}), ("s.a", {"A": "b"})]
    in_file, in_memory = (
        published(*messages, storage=storage).rows["size"].to_pylist()
        for storage in ("file", "memory")
    )
    block = len(headers.build([("A", "b")]))
    assert in_file == [30 + 3 + 5, 34 + 3 + block + 5]
    assert in_memory == [16 + 3 + 5, 16 + 3 + block + 5]


def test_a_short_ttl_is_raised_to_that_of_a_marker() -> None:
    settings: dict[str, Any] = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 100 * SECOND}
    raised, endless = published(
        ("s.a", {"Nats-TTL": "5"}), ("s.a", {"Nats-TTL": "never"}), **settings
    ).rows.to_pylist()
    assert raised["deadline_ns"] == TS_NS + 100 * SECOND
    assert raised["size"] == 34 + 3 + len(headers.build([("Nats-TTL", "100")])) + 5
    assert endless["deadline_ns"] == NEVER


def test_expectations_are_read_from_headers() -> None:
    given = {
        "Nats-Expected-Last-Sequence": "7",
        "Nats-Expected-Last-Subject-Sequence": "3",
        "Nats-Expected-Last-Subject-Sequence-Subject": "s.*",
        "Nats-Expected-Last-Msg-Id": "x",
    }
    publishes = published(("s.a", {}), ("s.a", given))
    assert publishes.expectations == {2: Expectation(b"7", b"3", "s.*", b"x")}
