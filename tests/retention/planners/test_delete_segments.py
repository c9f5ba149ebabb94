from __future__ import annotations

import json
from pathlib import Path

import pytest

from retention.api.topic import Topic
from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import StalePlanError, UsageError, VerificationError
from retention.plan.planfile import load_plans
from retention.stores.offset_table import OffsetTable
from tests.support.topic_crashes import NAME, import_logs, with_logs

NOW = 1_800_000_000 * 10**9
FORMATS = ("delta", "parquet")


def opened_at(folder: Path, format_: str, **said: object) -> Warehouse:
    """Partition 0 has segments 0, 10 and the active 20, read up to 12 by consumer 7; partition 1 has 0 and 5."""
    with_logs(folder, format_)
    place = folder / "retention.yaml"
    config = json.loads(place.read_text())
    config["topics"][0] |= {"message_expiry": "never"} | said
    place.write_text(json.dumps(config))
    warehouse = open_warehouse(place, engine="local", clock=lambda: NOW)
    import_logs(warehouse, folder)
    return warehouse


@pytest.fixture(params=FORMATS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return opened_at(tmp_path, request.param)


@pytest.fixture
def topic(warehouse: Warehouse) -> Topic:
    return warehouse.topic(NAME)


def there(topic: Topic) -> list[tuple[int, int]]:
    rows = [row for table in topic.messages() for row in table.to_pylist()]
    return sorted({(row["partition"], row["segment"]) for row in rows})


ALL = [(0, 0), (0, 10), (0, 20), (1, 0), (1, 5)]


def test_what_is_free_goes_now_and_the_rest_as_soon_as_it_is_read(topic: Topic) -> None:
    report = topic.delete_segments(0, 2).apply()
    assert (report.removed_messages, report.by_rule) == (10, {"delete_segments": 10})
    assert (report.files_read, report.bytes_written) == (0, 0)
    assert there(topic) == ALL[1:]
    assert topic.plan().plan.is_empty
    topic.store_offset(0, "consumer", "7", 19)
    assert "requested before" in repr(topic.plan())
    assert topic.plan().apply().by_rule == {"delete_segments": 10}
    assert there(topic) == ALL[2:]


def test_what_is_held_whole_goes_later_by_itself(topic: Topic) -> None:
    topic.store_offset(0, "group", 1, 0)
    asked = topic.delete_segments(0, 1)
    assert asked.plan.is_empty
    assert asked.apply().removed_messages == 0
    topic.store_offset(0, "group", 1, 9)
    assert topic.plan().apply().by_rule == {"delete_segments": 10}
    assert there(topic) == ALL[1:]


@pytest.mark.parametrize("format_", FORMATS)
def test_servers_of_08_forget_what_they_could_not_delete(format_: str, tmp_path: Path) -> None:
    topic = opened_at(tmp_path, format_, profile="v8").topic(NAME)
    assert topic.delete_segments(0, 2).apply().removed_messages == 10
    topic.delete_offset(0, "consumer", "7")
    assert topic.plan().plan.is_empty
    assert topic.delete_segments(0, 1).apply().removed_messages == 10
    assert there(topic) == ALL[2:]


def test_the_active_segment_stays_and_no_segments_are_none(topic: Topic) -> None:
    topic.delete_offset(0, "consumer", "7")
    assert topic.delete_segments(0, 0).apply().removed_messages == 0
    assert OffsetTable(topic.opened.root).read().watermarks == {}
    before = topic.opened.store.snapshot().counters
    assert topic.delete_segments(0, 2**32 - 1).apply().removed_messages == 20
    assert topic.delete_segments(0, 1).apply().removed_messages == 0
    assert there(topic) == ALL[2:]
    after = topic.opened.store.snapshot().counters
    assert (after.next_seq, after.open_base) == (before.next_seq, before.open_base)


@pytest.mark.parametrize("format_", FORMATS)
def test_offsets_that_are_not_respected_hold_nothing(format_: str, tmp_path: Path) -> None:
    topic = opened_at(tmp_path, format_, respect_consumer_offsets=False).topic(NAME)
    assert topic.delete_segments(0, 2).apply().removed_messages == 20


def test_it_is_recorded_explained_and_undone(warehouse: Warehouse, topic: Topic) -> None:
    topic.store_offset(0, "consumer", "7", 19)
    asked = topic.delete_segments(0, 1)
    assert asked.explain(3).sentence == (
        "clicks 3 of partition 0 is removed with its segment: delete_segments of partition 0, the oldest 1."
    )
    assert "its segment is none of these" in asked.explain(12).sentence
    assert "the active one" in asked.explain(25).sentence
    assert "in another partition" in asked.explain(1, partition=1).sentence
    asked.apply()
    [record] = [one for one in topic.history() if one["kind"] == "delete_segments"]
    assert record["request"] == {"rule": "delete_segments", "partition": 0, "count": 1, "up_to": 9}
    assert warehouse.undo(record["run"])["restored_messages"] == 10
    assert there(topic) == ALL
    assert topic.plan().plan.is_empty
    assert OffsetTable(topic.opened.root).read().watermarks == {0: -1}


def test_explain_names_who_holds_what_was_asked_for(topic: Topic) -> None:
    asked = topic.delete_segments(0, 2)
    assert "consumer 7 has read up to 12" in asked.explain(15).sentence
    asked.apply()
    found = topic.explain(15)
    assert "consumer 7 has read up to 12" in found.sentence
    assert "delete_segments has asked for what ends by offset 19" in found.arithmetic
    topic.store_offset(0, "consumer", "7", 19)
    assert "delete_segments has asked for" in topic.explain(15).sentence


def test_an_undo_refuses_plans_that_count_on_what_was_asked(
    warehouse: Warehouse, topic: Topic
) -> None:
    topic.delete_segments(0, 2).apply()
    topic.store_offset(0, "consumer", "7", 19)
    plan = topic.plan()
    assert plan.plan.removed_messages == 10
    [record] = [one for one in topic.history() if one["kind"] == "delete_segments"]
    warehouse.undo(record["run"])
    with pytest.raises(StalePlanError):
        plan.apply()
    assert there(topic) == ALL


def test_an_undo_that_is_refused_lowers_no_watermark(warehouse: Warehouse, topic: Topic) -> None:
    asked = topic.delete_segments(0, 2).apply()
    assert asked.removed_messages == 10
    live = set(topic.opened.store.snapshot().files["path"].to_pylist())
    for file in Path(topic.opened.root).rglob("segment=*/*.parquet"):
        if file.name not in {path.rpartition("/")[2] for path in live}:
            file.unlink()
    before = OffsetTable(topic.opened.root).read()
    with pytest.raises(VerificationError, match="no longer exist"):
        warehouse.undo(asked.run)
    assert OffsetTable(topic.opened.root).read() == before


def test_undoing_the_pass_that_took_the_rest_forgets_the_rest_alone(
    warehouse: Warehouse, topic: Topic
) -> None:
    topic.delete_segments(0, 2).apply()
    topic.store_offset(0, "consumer", "7", 19)
    taken = topic.plan().apply()
    assert taken.by_rule == {"delete_segments": 10}
    warehouse.undo(taken.run)
    assert OffsetTable(topic.opened.root).read().watermarks == {0: 9}
    assert topic.plan().plan.is_empty
    assert there(topic) == ALL[1:]


def test_a_saved_plan_of_it_is_what_is_applied(topic: Topic, tmp_path: Path) -> None:
    place = tmp_path / "plan.json"
    asked = topic.delete_segments(0, 2)
    asked.save(place)
    [loaded] = load_plans(str(place))
    assert loaded.header.request == asked.plan.header.request
    assert loaded.plan_id == asked.plan.plan_id
    topic.store_offset(0, "consumer", "7", 2)
    with pytest.raises(StalePlanError):
        asked.apply()
    assert there(topic) == ALL
    assert OffsetTable(topic.opened.root).read().watermarks == {}


@pytest.mark.parametrize(("partition", "count"), [(2, 1), (-1, 1), (0, -1), (0, 2**32)])
def test_what_cannot_be_asked(topic: Topic, partition: int, count: int) -> None:
    with pytest.raises(UsageError):
        topic.delete_segments(partition, count)
    assert there(topic) == ALL
