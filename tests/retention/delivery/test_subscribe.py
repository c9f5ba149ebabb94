from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import RefusedError, UsageError
from tests.support.laying import START

LISTED = {"durable_name": "audit", "ack_policy": "explicit", "filter_subject": "orders.lost"}
PUSHED = {"durable_name": "loud", "ack_policy": "explicit", "deliver_subject": "push.here"}

QUEUED = {"subject": "orders.lost", "consumer": "loud", "queue": "q", "pull": False}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    streams = [
        {"name": "ORDERS", "subjects": ["orders.>"], "consumers": [LISTED, PUSHED]},
        {"name": "EU", "subjects": ["eu.lost"]},
        {"name": "ALL", "subjects": ["eu.paid"]},
    ]
    config = {"warehouse": ".", "defaults": {"format": "parquet"}, "streams": streams}
    (tmp_path / "retention.yaml").write_text(json.dumps(config))
    opened = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: START)
    lines = [json.dumps({"subject": f"orders.{name}"}) for name in ("paid", "lost", "paid")]
    opened.stream("ORDERS").publish(lines)
    return opened


def test_a_subject_alone_finds_its_stream_and_a_consumer_for_a_while(warehouse: Warehouse) -> None:
    orders = warehouse.stream("ORDERS")
    with warehouse.subscribe("orders.paid") as first, warehouse.subscribe("orders.paid") as second:
        assert (first.stream, first.name != second.name) == ("ORDERS", True)
        assert first.fetch().seqs.tolist() == second.fetch().seqs.tolist() == [1, 3]
        assert orders.consumers.info(first.name).filters == ("orders.paid",)
    assert {consumer.name for consumer in orders.consumers.list()} <= {"audit", "loud"}


def test_a_position_to_start_from_is_said_in_the_configuration(warehouse: Warehouse) -> None:
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": 2}
    with warehouse.subscribe(stream="ORDERS", config=start) as consumer:
        assert consumer.fetch().seqs.tolist() == [2, 3]


@pytest.mark.parametrize("named", ["consumer", "queue"])
def test_a_consumer_with_a_name_is_created_once_and_stays(warehouse: Warehouse, named: str) -> None:
    for expected in ([1], [3]):
        with warehouse.subscribe("orders.paid", **{named: "billing"}) as consumer:  # type: ignore[arg-type]
            assert consumer.fetch(1).seqs.tolist() == expected
    assert warehouse.stream("ORDERS").consumers.info("billing").config["ack_policy"] == "explicit"


def test_a_consumer_that_is_listed_is_taken_as_it_is(warehouse: Warehouse) -> None:
    assert warehouse.subscribe(stream="ORDERS", consumer="audit").fetch().seqs.tolist() == [2]


@pytest.mark.parametrize(
    ("subscription", "error", "why"),
    [
        ({}, UsageError, "no subject is given"),
        ({"subject": "refunds"}, UsageError, "no stream has 'refunds'"),
        ({"subject": "eu.*"}, UsageError, "a subject of several streams: EU, ALL"),
        ({"stream": "NOWHERE"}, UsageError, "there is no stream NOWHERE"),
        ({"subject": "orders.a", "config": {"ack": 1}}, UsageError, "ack: "),
        ({"subject": "orders.paid", "consumer": "audit"}, RefusedError, "write orders.lost"),
        ({"subject": "orders.a", "consumer": "loud"}, RefusedError, "loud pushes to push.here"),
        ({"subject": "orders.a", "config": {"ack_policy": "all"}}, RefusedError, "write explicit"),
        ({"subject": "orders.a", "pull": False}, RefusedError, "this client pushes nothing"),
        (QUEUED, RefusedError, "loud has no queue"),
    ],
)
def test_what_must_not_be_asked_is_refused_and_changes_nothing(
    warehouse: Warehouse, subscription: dict[str, Any], error: type[Exception], why: str
) -> None:
    before = warehouse.stream("ORDERS").consumers.list()
    with pytest.raises(error, match=why):
        warehouse.subscribe(**subscription)
    assert warehouse.stream("ORDERS").consumers.list() == before
