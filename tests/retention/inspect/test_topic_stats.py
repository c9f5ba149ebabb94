from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.guards import Guards
from retention.errors import UsageError
from retention.views.text_topic import MOST_PARTITIONS
from tests.conformance.test_topic_rules import DERIVED
from tests.retention.stores.test_topic_settings import FORMATS, NOW, Lake
from tests.support.iggy_logs import NAMES, ORIGINALS, Message, log_08, original, written
from tests.support.topic_crashes import NAME


def clicks(folder: Path, format_: str) -> Warehouse:
    """Topic `clicks` of Iggy's stream `shop`, with messages, and two empty topics."""
    Lake(folder, format_, stream="shop", message_expiry="1s").created()
    place = folder / "retention.yaml"
    config = json.loads(place.read_text())
    config["topics"] += [{"name": "views", "stream": "shop"}, {"name": "alone", "partitions": 2}]
    place.write_text(json.dumps(config))
    return open_warehouse(place, engine="local", clock=lambda: NOW)


@pytest.mark.parametrize("format_", FORMATS)
def test_every_level_is_the_sum_of_the_one_below(format_: str, tmp_path: Path) -> None:
    warehouse = clicks(tmp_path, format_)
    rows = warehouse.topic_stats().rows
    levels = [(row.level, row.iggy_stream, row.topic, row.partition) for row in rows]
    assert levels == [
        ("total", None, None, None),
        ("iggy_stream", "shop", None, None),
        ("topic", "shop", NAME, None),
        ("partition", "shop", NAME, 0),
        ("partition", "shop", NAME, 1),
        ("topic", "shop", "views", None),
        ("partition", "shop", "views", 0),
        ("topic", None, "alone", None),
        ("partition", None, "alone", 0),
        ("partition", None, "alone", 1),
    ]
    parts = [row for row in rows if row.level == "partition"]
    for row in rows:
        mine = [
            part
            for part in parts
            if all(
                wanted in (None, found)
                for wanted, found in ((row.iggy_stream, part.iggy_stream), (row.topic, part.topic))
            )
        ]
        if row.level != "partition" and (row.topic or row.iggy_stream or row.level == "total"):
            assert row.messages == sum(part.messages for part in mine)
            assert row.bytes == sum(part.bytes for part in mine)
            assert row.segments == sum(part.segments for part in mine)
            assert row.partitions == len(mine)
    assert (rows[0].topics, rows[1].topics, rows[0].messages) == (3, 2, 40)
    state = warehouse.topic(NAME).state()
    assert (rows[2].messages, rows[2].bytes, rows[2].segments) == (
        state.messages,
        state.bytes,
        state.segments,
    )


@pytest.mark.parametrize("format_", FORMATS)
def test_what_a_pass_drops_is_subtracted_and_offsets_stay(format_: str, tmp_path: Path) -> None:
    warehouse = clicks(tmp_path, format_)
    before = warehouse.topic_stats([NAME]).rows
    report = warehouse.topic(NAME).plan().apply()
    after = warehouse.topic_stats([NAME]).rows
    assert before[0].messages - after[0].messages == report.removed_messages == 15
    assert before[0].bytes - after[0].bytes == report.removed_bytes
    assert before[0].segments - after[0].segments == report.segments["dropped"] == 2
    for row in after:
        if row.level == "partition":
            assert row.first_seq is not None
            assert row.last_seq is not None
            assert row.messages == row.last_seq - row.first_seq + 1
            assert row.missing == 0
    assert [row.last_seq for row in before] == [row.last_seq for row in after]


@pytest.mark.parametrize("case", [one for one in DERIVED if one["op"] == "stats"])
def test_a_dropped_segment_counts_for_its_messages(case: dict[str, Any], tmp_path: Path) -> None:
    """Also a segment with a single message, which 0.8 did not count."""
    start, end, *_ = case["seg"]
    logs = {
        start: log_08([Message(offset, timestamp=1) for offset in range(start, end + 1)]),
        end + 1: log_08([Message(end + 1, timestamp=1)]),
    }
    lake = Lake(tmp_path, "delta", message_expiry="1s")
    topic = lake.topic()
    topic.import_iggy_log(written(tmp_path / "own", {"0": logs}))
    assert topic.plan().apply().removed_messages == case["messages_removed"]
    assert topic.state().messages == 1


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_real_directories_count_as_their_servers_did(
    name: str, format_: str, tmp_path: Path
) -> None:
    manifest = json.loads((ORIGINALS / name / "manifest.json").read_text())
    place = tmp_path / "lake" / "retention.yaml"
    place.parent.mkdir()
    policy = manifest["policy"]
    topic = {
        "name": NAME,
        "partitions": len(manifest["before"]),
        "profile": manifest["profile"],
        "segment_size": policy.get("segment_size", manifest.get("segment_size")),
        "message_expiry": policy["message_expiry_us"],
        "max_topic_size": policy["max_topic_size"],
    }
    place.write_text(json.dumps({"defaults": {"format": format_}, "topics": [topic]}))
    warehouse = open_warehouse(place, engine="local")
    warehouse.topic(NAME).import_iggy_log(original(name, "before", tmp_path))
    [outcome] = warehouse.apply([NAME], policy["now_us"] * 1_000, Guards(allow_future=True))
    assert outcome.value is not None, outcome.error
    rows = [row for row in warehouse.topic_stats().rows if row.level == "partition"]
    for row in rows:
        left = manifest["after"][str(row.partition)]
        at = {field: number for number, field in enumerate(manifest["segment"])}
        spans = [(one[at["start"]], one[at["end"]]) for one in left if one[at["end"]] is not None]
        assert row.segments == len(left)
        assert row.messages == sum(end - start + 1 for start, end in spans)
        offsets = {offset for start, end in spans for offset in range(start, end + 1)}
        assert row.missing == max(offsets) - min(offsets) + 1 - len(offsets)
    assert any(row.missing for row in rows) == (name == "v8-hole")


@pytest.mark.parametrize("format_", FORMATS)
def test_they_are_a_data_frame_a_table_and_a_page(format_: str, tmp_path: Path) -> None:
    stats = clicks(tmp_path, format_).topic_stats()
    frame = stats.to_pandas()
    assert frame.to_dict("records")[3]["messages"] == 30
    assert frame[frame["level"] == "topic"]["messages"].sum() == 40
    assert str(frame.dtypes["last_seq"]) == "Int64"
    assert json.loads(json.dumps(stats.as_json()))[0]["topics"] == 3
    assert repr(stats).splitlines()[1].split()[:4] == ["total", "3", "topics", "5"]
    assert "<td" in stats._repr_html_()


def test_a_state_shows_settings_and_the_first_of_many_partitions(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "parquet", partitions=MOST_PARTITIONS + 3)
    state = lake.created({"message_expiry": "7d"}, max_topic_size="20GiB").state()
    shown = repr(state)
    assert "message_expiry 7d (default), max_topic_size 20 GiB, segment_size 1 GiB (def" in shown
    assert shown.endswith("\n  and 3 more partitions")
    assert "max_topic_size 20 GiB" in state._repr_html_()
    assert state.as_json()["settings"] == {
        "message_expiry_us": 604_800 * 10**6,
        "max_topic_size": 20 * 2**30,
        "segment_size": 2**30,
        "defaulted": ("message_expiry", "segment_size"),
    }


def test_only_topics_have_statistics_of_topics(tmp_path: Path) -> None:
    place = tmp_path / "retention.yaml"
    place.write_text("streams: [{name: ORDERS}]")
    warehouse = open_warehouse(place)
    assert [row.topics for row in warehouse.topic_stats().rows] == [0]
    with pytest.raises(UsageError, match="ORDERS: is not a topic"):
        warehouse.topic_stats(["ORDERS"])
