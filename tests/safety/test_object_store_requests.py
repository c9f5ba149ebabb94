"""The cost of an append on an object store does not grow with earlier appends: a proxy counts requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.storage import files
from retention.stores.sidecar.stats_cache import MERGE_ABOVE
from tests.support.buckets import BUCKET, object_store
from tests.support.front import Front, front_of
from tests.support.laying import SECOND, START

EARLY, LATE = 15, 45
"""Both of them five versions behind a checkpoint."""
APART = 2
MOST = 95
MOST_FOR_TRIAL = 8
"""Once per process: the probe of the store for exclusion of rivals."""
MOST_FOR_STATISTICS = 3 * MERGE_ABOVE
"""Their number of small files varies, but never exceeds this."""
CONFIG = {"streams": [{"name": "ORDERS", "subjects": [">"], "no_ack": True, "max_age": "1h"}]}


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    with object_store() as store, front_of(store["AWS_ENDPOINT_URL"]) as (front, address):
        for name, value in (store | {"AWS_ENDPOINT_URL": address}).items():
            monkeypatch.setenv(name, value)
        yield front


def publish(place: str, number: int) -> None:
    """Publish one batch through a newly opened warehouse, without state of the previous batch."""
    warehouse = open_warehouse(place, clock=lambda: START + (1000 + number) * SECOND)
    line = json.dumps({"subject": "a", "data": "x", "ts_ns": START + number * SECOND})
    warehouse.stream("ORDERS").publish([line.encode()], "app", number)


def uploaded(folder: Path, place: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".lease":
            files.replace(f"{place}/{path.relative_to(folder)}", path.read_bytes())


def test_a_late_append_costs_as_many_requests_as_an_early_one(door: Front, tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text(json.dumps(CONFIG))
    asked_else: list[int] = []
    asked: dict[int, Counter[str]] = {}
    for number in range(1, LATE + 1):
        if number in (EARLY, LATE):
            place = f"s3://{BUCKET}/{number}"
            uploaded(tmp_path, place)
            door.begin()
            publish(place, number)
            asked[number] = Counter(f"{call.operation} {call.place}" for call in door.calls)
        publish(str(tmp_path), number)
    for count in asked.values():
        learned = sum(of for what, of in count.items() if what.endswith(" _retention/stats"))
        assert learned <= MOST_FOR_STATISTICS, count
        tried = sum(of for what, of in count.items() if what.endswith(" trial"))
        assert 0 < tried <= MOST_FOR_TRIAL, count
        asked_else.append(count.total() - learned - tried)
    assert abs(asked_else[0] - asked_else[1]) <= APART, asked
    assert max(asked_else) <= MOST, asked
