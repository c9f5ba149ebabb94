"""A topic with nothing due is not opened, and has the same plan as if it were."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from retention.api.topic import Topic
from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.guards import Guards
from retention.engines.select import Engines
from retention.plan.plan import Plan
from retention.planners.cached import Planned, plan_pass
from retention.planners.topic import plan_topic_table
from retention.stores.delta.table import for_deltalake
from retention.stores.layout import Layout
from retention.stores.parquet import listing
from tests.support.topic_crashes import NAME, import_logs, with_logs

SECOND = 10**9
START = 1_700_000_000 * SECOND
EXPIRY = 60 * SECOND
NOW = START + EXPIRY - 10 * SECOND
"""No message is older than a minute."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    with_logs(tmp_path, "delta")
    opened = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: NOW)
    import_logs(opened, tmp_path)
    return opened


@pytest.fixture
def topic(warehouse: Warehouse) -> Topic:
    return warehouse.topic(NAME)


def planned(topic: Topic, as_of_ns: int = NOW) -> Planned:
    with Engines("local") as engines:
        return plan_pass(topic.opened, as_of_ns, engines)


def from_everything(topic: Topic, as_of_ns: int) -> Plan:
    policy = topic.opened.config.policy().topic
    assert policy is not None
    return plan_topic_table(topic.opened, policy, as_of_ns).plan


def is_opened(topic: Topic, as_of_ns: int = NOW) -> bool:
    return planned(topic, as_of_ns).snapshot is not None


def test_the_second_pass_opens_nothing_and_plans_the_same(topic: Topic) -> None:
    first, second = planned(topic), planned(topic)
    assert (first.snapshot is None, second.snapshot is None) == (False, True)
    assert first.plan.is_empty
    assert second.plan.plan_id == first.plan.plan_id
    assert second.plan.summary() == first.plan.summary()
    assert dict(second.next_seq) == dict(first.next_seq) == {0: 30, 1: 10}


def test_it_is_opened_from_the_very_instant_on_at_which_something_expires(topic: Topic) -> None:
    times = topic.opened.store.inventory(topic.opened.store.snapshot()).files["max_ts_ns"]
    due = min(times.to_pylist()) + EXPIRY
    planned(topic)
    assert not is_opened(topic, due - 1)
    assert from_everything(topic, due - 1).is_empty
    found = planned(topic, due)
    assert found.snapshot is not None
    assert not found.plan.is_empty


def test_what_is_held_back_is_told_each_time(topic: Topic) -> None:
    topic.store_offset(0, "group", 1, 0)
    topic.store_offset(1, "group", 1, 0)
    late = START + 10**6 * SECOND
    for _ in range(2):
        found = planned(topic, late)
        assert found.snapshot is not None
        assert found.plan.is_empty
        assert found.plan.held_segments is not None
        assert found.plan.held_segments.segments > 0


def test_whatever_changes_makes_it_be_opened_again(tmp_path: Path, warehouse: Warehouse) -> None:
    topic = warehouse.topic(NAME)
    planned(topic)
    assert not is_opened(topic)
    topic.store_offset(0, "consumer", "7", 13)
    assert is_opened(topic)
    assert not is_opened(topic)
    table = for_deltalake(Layout(topic.opened.root, NAME))
    table.alter.set_table_properties({"delta.checkpointInterval": "7"})
    assert is_opened(topic)
    assert not is_opened(topic)
    config = json.loads((tmp_path / "retention.yaml").read_text())
    config["topics"][0]["message_expiry"] = "61s"
    (tmp_path / "retention.yaml").write_text(json.dumps(config))
    again = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: NOW)
    assert is_opened(again.topic(NAME))


def test_what_is_remembered_is_of_the_epoch(warehouse: Warehouse, topic: Topic) -> None:
    topic.purge().apply()
    import_logs(warehouse, Path(warehouse.location))
    first, second = planned(topic), planned(topic)
    assert second.snapshot is None
    assert second.plan.header.epoch == first.plan.header.epoch > 0
    assert second.plan.plan_id == first.plan.plan_id


def test_a_pass_over_a_quiet_topic_is_recorded(warehouse: Warehouse) -> None:
    for _ in range(2):
        [outcome] = warehouse.apply([NAME], NOW, Guards())
        assert outcome.value is not None
        assert outcome.value.segments == {"dropped": 0, "rewritten": 0, "kept": 5}
    assert len(warehouse.topic(NAME).history()) == 2


def test_what_is_remembered_and_damaged_is_not_believed(topic: Topic) -> None:
    planned(topic)
    place = Path(topic.opened.root, "_retention", "due.json")
    place.write_bytes(place.read_bytes().replace(b'"due_ns": 1', b'"due_ns": 2'))
    assert is_opened(topic)


def test_directories_of_plain_parquet_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "WORTH_FILES", 1)
    monkeypatch.setattr(listing, "COARSE_NS", 0)
    monkeypatch.setattr("retention.stores.parquet.listing._TIMED_NS", 10**12)
    with_logs(tmp_path, "parquet")
    opened = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: NOW)
    import_logs(opened, tmp_path)
    topic = opened.topic(NAME)
    time.sleep(0.05)  # file times have a resolution of a few milliseconds
    planned(topic)
    planned(topic)
    assert not is_opened(topic)
    topic.store_offset(0, "group", 3, 0)
    assert is_opened(topic)
