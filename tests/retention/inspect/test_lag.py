"""The start of a stream's lag behind its policy, under each kind of rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.units import DAY, HOUR
from retention.inspect.lag import NO_LAG, Lag, lag_of
from tests.support.sandboxes import NOW, configured, lines

FIRST = NOW - 10 * DAY


def stream(folder: Path, **settings: Any) -> Warehouse:
    """A warehouse with a stream S of 48 hourly messages from ten days ago on; its clock is three days behind."""
    file = configured(folder, {"name": "S", "subjects": ["s.>"], **settings}, engine="local")
    warehouse = open_warehouse(file, clock=lambda: NOW - 3 * DAY)
    warehouse.stream("S").publish(lines(48, "s.a", FIRST))
    return warehouse


def lag(warehouse: Warehouse, as_of_ns: int = NOW) -> Lag | None:
    opened = warehouse.stream("S").opened
    measured = lag_of(opened, as_of_ns)
    assert warehouse.stream("S").state(as_of_ns).lag == measured
    return measured


@pytest.mark.parametrize(
    ("settings", "messages", "since_ns"),
    [
        ({"max_age": "9d"}, 24, FIRST + 9 * DAY),
        ({"max_age": "9d", "expiry": "each"}, 25, FIRST + 9 * DAY),
        ({"max_age": "30d"}, 0, None),
        ({"max_msgs": 40}, 8, FIRST),
        ({"max_msgs_per_subject": 1}, 47, FIRST),
        ({}, 0, None),
    ],
)
def test_a_lag_begins_when_a_pass_could_first_have_taken_something(
    tmp_path: Path, settings: dict[str, Any], messages: int, since_ns: int | None
) -> None:
    measured = lag(stream(tmp_path, **settings))
    assert measured is not None
    assert (measured.messages, measured.since_ns) == (messages, since_ns)
    assert measured.behind_ns(NOW) == (0 if since_ns is None else NOW - since_ns)


def test_what_exceeds_a_number_counts_since_the_last_pass(tmp_path: Path) -> None:
    warehouse = stream(tmp_path, max_msgs=40)
    applied = NOW - 4 * DAY
    warehouse.apply(["S"], applied)
    assert lag(warehouse) == NO_LAG
    warehouse.stream("S").publish(lines(3, "s.a", NOW - 5 * DAY))
    measured = lag(warehouse)
    assert measured is not None
    assert (measured.messages, measured.since_ns) == (3, applied)
    earlier = lag(warehouse, applied - HOUR)
    assert earlier is not None
    assert earlier.behind_ns(applied - HOUR) == 0


def test_what_no_consumer_needs_counts_since_the_oldest_message(tmp_path: Path) -> None:
    reader = {"durable_name": "c", "ack_policy": "none", "deliver_policy": "new"}
    warehouse = stream(tmp_path, retention="interest", consumers=[reader])
    assert lag(warehouse) == Lag(48, 2054, FIRST)
    warehouse.apply(["S"], FIRST + 2 * DAY)
    assert lag(warehouse) == NO_LAG


def test_nothing_stored_is_no_lag(tmp_path: Path) -> None:
    file = configured(tmp_path, {"name": "S", "max_age": "1h"})
    warehouse = open_warehouse(file, clock=lambda: NOW)
    assert lag_of(warehouse.stream("S").opened, NOW) == NO_LAG


def test_a_topic_lags_since_its_segment_expired(tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    topic = {"name": "t", "message_expiry": "1d", "roll_after": "1h"}
    file.write_text(json.dumps({"warehouse": ".", "topics": [topic]}), encoding="utf-8")
    clock = NOW - 5 * DAY
    warehouse = open_warehouse(file, clock=lambda: clock, engine="local")
    warehouse.topic("t").publish([{"data": "x"}])
    clock = NOW - 5 * DAY + 2 * HOUR
    warehouse.apply(["t"])
    measured = lag_of(warehouse.topic("t").opened, NOW)
    assert measured is not None
    assert (measured.messages, measured.since_ns) == (1, NOW - 4 * DAY)
