from __future__ import annotations

from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from tests.retention.planners.test_delete_segments import FORMATS, NOW, opened_at
from tests.support.topic_crashes import NAME

SMALL = {"profile": "v8", "segment_size": 512, "max_topic_size": 512}


@pytest.mark.parametrize("format_", FORMATS)
def test_of_two_limits_the_one_that_takes_a_message_is_named(format_: str, tmp_path: Path) -> None:
    topic = opened_at(tmp_path, format_, **SMALL, message_expiry="4000000000s").topic(NAME)
    found = topic.explain(3)
    assert (found.goes, found.rule) == (True, "max_topic_size")
    assert "is removed with its segment: max_topic_size 512 B: the topic has" in found.sentence
    assert found.arithmetic[-1].startswith("message_expiry")


@pytest.mark.parametrize("format_", FORMATS)
def test_a_changed_expiry_counts_from_the_next_pass_on(format_: str, tmp_path: Path) -> None:
    warehouse = opened_at(tmp_path, format_)
    assert warehouse.apply([NAME])[0].value.removed_messages == 0  # type: ignore[union-attr]
    place = tmp_path / "retention.yaml"
    place.write_text(place.read_text().replace('"never"', '"1s"'))
    changed = open_warehouse(place, engine="local", clock=lambda: NOW).topic(NAME)
    assert changed.plan().apply().by_rule == {"message_expiry": 15}


@pytest.mark.parametrize("format_", FORMATS)
def test_the_active_segment_stays_however_old_it_is(format_: str, tmp_path: Path) -> None:
    topic = opened_at(tmp_path, format_, message_expiry="1s").topic(NAME)
    topic.delete_offset(0, "consumer", "7")
    topic.plan().apply()
    before = [table.to_pylist() for table in topic.messages()]
    for _ in range(3):
        assert topic.plan().apply().removed_messages == 0
    assert [table.to_pylist() for table in topic.messages()] == before
    assert "the active one" in topic.explain(25).sentence
