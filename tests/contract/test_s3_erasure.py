"""Legal holds and erasures on an object store: what was erased is in no object of the bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.errors import RefusedError
from retention.storage import files
from tests.erasure.test_erase import EVE, TOKENS
from tests.support.strangers_search import hiding_places


def copied(bucket: str, folder: Path) -> str:
    """A copy of every object of a bucket, for a stranger's search."""
    for path in files.walk(bucket):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files.read_bytes(f"{bucket}/{path}") or b"")
    return str(folder)


def test_what_was_erased_is_in_no_object(bucket: str, tmp_path: Path) -> None:
    place = f"{bucket}/lake"
    config = {"streams": [{"name": "ORDERS", "subjects": ["orders.>"]}]}
    files.replace(f"{place}/retention.yaml", json.dumps(config).encode())
    warehouse = open_warehouse(place, engine="local")
    stream = warehouse.new_stream("ORDERS")
    lines = [
        {"subject": EVE, "data": "payload-8c1e5a7733d0"},
        {"subject": "orders.bob", "data": "another payload"},
    ]
    for _ in range(3):
        stream.publish(json.dumps(line).encode() for line in lines)
    stream.purge(EVE, keep=2).apply()
    hold = warehouse.hold("ORDERS", subject=EVE, to_seq=3, reason="case 41", owner="legal")
    with pytest.raises(RefusedError, match=hold.id):
        stream.erase(EVE, reason="request 7")
    warehouse.release_hold(hold.id, reason="closed")
    assert hiding_places(copied(bucket, tmp_path / "before"), TOKENS)
    report = stream.erase(EVE, reason="request 7").apply()
    assert report.is_done, report.traces
    assert hiding_places(copied(bucket, tmp_path / "after"), TOKENS) == []
    assert [row["seq"] for rows in stream.messages() for row in rows.to_pylist()] == [2, 4, 6]
    assert stream.verify().damages == ()
