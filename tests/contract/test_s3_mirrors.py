"""Mirrors and sources on an object store: messages are copied once, in the same commit as the position."""

from __future__ import annotations

import json

import pytest

from retention.api.warehouse import open_warehouse
from retention.storage import files
from tests.support.sandboxes import lines

NOW = 1_780_000_000 * 10**9
CONFIG = {
    "streams": [
        {"name": "COPY", "mirror": {"name": "ORDERS"}},
        {"name": "EU", "sources": [{"name": "ORDERS", "filter_subject": "orders.eu"}]},
        {"name": "ORDERS", "subjects": ["orders.>"], "segment_span": "5h"},
    ]
}


@pytest.mark.thorough
def test_mirrors_and_sources_follow_their_origin(bucket: str) -> None:
    files.replace(f"{bucket}/retention.yaml", json.dumps(CONFIG).encode())
    warehouse = open_warehouse(bucket, engine="local", clock=lambda: NOW)
    given = [*lines(7, "orders.us", NOW - 10**15), *lines(3, "orders.eu", NOW - 10**14)]
    for expected in ([10, 3], [0, 0]):
        if expected[0]:
            warehouse.stream("ORDERS").publish(given)
        outcomes = warehouse.mirror()
        assert [one.value.messages for one in outcomes if one.value] == expected
    copied = [t.drop_columns(["segment"]) for t in warehouse.stream("COPY").messages()]
    held = [t.drop_columns(["segment"]) for t in warehouse.stream("ORDERS").messages()]
    assert [row for t in copied for row in t.to_pylist()] == [
        row for t in held for row in t.to_pylist()
    ]
    (came,) = [table["seq"].to_pylist() for table in warehouse.stream("EU").messages()]
    assert came == [1, 2, 3]
