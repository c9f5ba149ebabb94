from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.context.context import OpenedStream
from retention.core import headers
from retention.errors import RefusedError
from retention.formats.jsonl import SkippedLine
from retention.ingest.publish import publish
from tests.support.plain_store import at, configured, opened_stream, store_of

NOW = 1_700_000_000 * 10**9
TARGET = {"Nats-Schedule-Target": "orders.t"}


def line(subject: str, headers: dict[str, str], data: str = "") -> str:
    return json.dumps({"subject": subject, "headers": headers, "data": data})


def add(number: str, subject: str = "orders.a", **more: str) -> str:
    return line(subject, {"Nats-Incr": number, **more})


def totals(opened: OpenedStream) -> list[tuple[str, str]]:
    rows = store_of(opened).rows()
    values = [json.loads(payload)["val"] for payload in rows["payload"].to_pylist()]
    return list(zip(rows["subject"].to_pylist(), values, strict=True))


@pytest.fixture
def counters(tmp_path: Path) -> OpenedStream:
    return opened_stream(tmp_path, NOW, allow_msg_counter=True)


def refusal(opened: OpenedStream, *lines: str) -> str:
    with pytest.raises(RefusedError) as refused:
        publish(opened, lines)
    return str(refused.value)


def test_a_batch_counts_on_from_what_is_stored(counters: OpenedStream) -> None:
    publish(counters, [add("+10"), add("1", "orders.b"), add("-3")])
    acks = [*publish(counters, [add("5"), add("2", "orders.b"), add("1", "orders.c")]).acks()]
    assert [ack.val for ack in acks] == ["12", "3", "1"]
    assert totals(counters) == [
        *(("orders.a", "10"), ("orders.b", "1"), ("orders.a", "7")),
        *(("orders.a", "12"), ("orders.b", "3"), ("orders.c", "1")),
    ]
    sizes = store_of(counters).rows()["size"].to_pylist()
    block = b"NATS/1.0\r\nNats-Incr: +10\r\n\r\n"
    assert sizes[0] == 34 + len("orders.a") + len(block) + len(b'{"val":"10"}')


def test_a_duplicate_is_not_counted_again(counters: OpenedStream) -> None:
    once = {"Nats-Msg-Id": "one"}
    publish(counters, [add("10", **once)])
    repeated, after = publish(counters, [add("10", **once), add("1")]).acks()
    assert (repeated.duplicate, repeated.val, after.val) == (True, None, "11")


def test_after_a_lost_race_it_counts_anew(counters: OpenedStream) -> None:
    publish(counters, [add("1")])
    rival = at(counters, NOW)
    object.__setattr__(rival, "root", counters.root + "-rival")

    def come_first() -> None:
        publish(rival, [add("100")])

    store_of(counters).before_commit += [come_first, lambda: None]
    (ack,) = publish(counters, [add("10")]).acks()
    assert (ack.seq, ack.val) == (3, "111")


def test_a_total_grows_until_it_has_too_many_digits(counters: OpenedStream) -> None:
    publish(counters, [add("9" * 4_000)])
    assert "more than 4,000 digits" in refusal(counters, add("1"))
    assert "more than 4,000 digits" in refusal(counters, add("1" * 4_001, "orders.b"))


REFUSED: dict[str, tuple[dict[str, Any], str, int | None]] = {
    "an increment off counters": ({}, add("+10"), 10168),
    "no number": ({}, add("ten"), 10171),
    "a counter without an increment": ({"allow_msg_counter": True}, line("orders.a", {}), 10169),
    "an increment with a payload": (
        {"allow_msg_counter": True},
        line("orders.a", {"Nats-Incr": "1"}, "x"),
        10170,
    ),
    "an increment with an expectation": (
        {"allow_msg_counter": True},
        add("1", **{"Nats-Expected-Last-Sequence": "0"}),
        10171,
    ),
    "a total above max_msg_size": (
        {"allow_msg_counter": True, "max_msg_size": 40},
        add("1234567"),
        10054,
    ),
    "a schedule where there are none": (
        {},
        line("orders.a", {"Nats-Schedule": "@hourly", **TARGET}),
        10188,
    ),
    "a pattern that is none": (
        {"allow_msg_schedules": True},
        line("orders.a", {"Nats-Schedule": "hourly", **TARGET}),
        10189,
    ),
    "a schedule without a target": (
        {"allow_msg_schedules": True},
        line("orders.a", {"Nats-Schedule": "@hourly"}),
        10190,
    ),
    "a time zone that is none": (
        {"allow_msg_schedules": True},
        line("orders.a", {"Nats-Schedule": "@hourly", "Nats-Schedule-Time-Zone": "x", **TARGET}),
        10223,
    ),
    "the purge of a schedule": (
        {"allow_msg_schedules": True},
        line("orders.a", {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "orders.b"}),
        None,
    ),
    "a batch": ({}, line("orders.a", {"Nats-Batch-Id": "b"}), 10174),
    "a batch where there are batches": (
        {"allow_atomic": True},
        line("orders.a", {"Nats-Batch-Id": "b"}),
        None,
    ),
    "a source": ({}, line("orders.a", {"Nats-Stream-Source": "O 1 > > o"}), 10227),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_server_does_not_take_is_refused(tmp_path: Path, case: str) -> None:
    config, given, code = REFUSED[case]
    opened = opened_stream(tmp_path, NOW, **config)
    problem = refusal(opened, given)
    assert problem.startswith("line 1: stream ORDERS refuses the message on 'orders.a'")
    assert ("server error" in problem) == (code is not None)
    assert code is None or f"(server error {code})" in problem
    assert not store_of(opened).swaps


def test_a_counter_that_holds_no_total_is_broken(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, NOW)
    publish(opened, [line("orders.a", {}, "no total")])
    counting = configured(opened, allow_msg_counter=True)
    assert "(server error 10172): the counter is broken" in refusal(counting, add("1"))


def test_a_schedule_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, NOW, allow_msg_schedules=True)
    hourly, daily = ({"Nats-Schedule": name, **TARGET} for name in ("@hourly", "@daily"))
    publish(opened, [line("orders.a", hourly), line("orders.b", daily)])
    publish(opened, [line("orders.a", daily)])
    rows = store_of(opened).rows()
    assert rows["seq"].to_pylist() == [2, 3]
    for block in rows["headers"].to_pylist():
        assert block.endswith(b"Nats-Schedule-Target: orders.t\r\nNats-Rollup: sub\r\n\r\n")


@pytest.mark.parametrize(("size", "code"), [(132, None), (133, 10054)])
def test_a_schedule_has_room_for_the_roll_up_that_is_added(
    tmp_path: Path, size: int, code: int | None
) -> None:
    opened = configured(opened_stream(tmp_path), allow_msg_schedules=True, max_msg_size=150)
    named = {"Nats-Schedule": "@hourly", **TARGET}
    payload = "x" * (size - len(headers.build(list(named.items()))))
    left: list[SkippedLine] = []
    publish(opened, [line("orders.a", named, payload)], leave_out=left.extend)
    assert [one.code for one in left] == ([] if code is None else [code])
