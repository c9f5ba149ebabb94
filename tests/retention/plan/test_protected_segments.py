from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.api.log import BoundPlan
from retention.plan.planfile import load_plans
from retention.plan.protected import ProtectedSegments, protected_segments_from_json
from retention.plan.protected_segments import protected_segments
from retention.rules import MESSAGE_EXPIRY, RULES
from retention.rules.row_verdicts import STAYS
from retention.schemas.files import FILE_STATS
from retention.stores.offset_table import Offsets, Reader, StoredOffset
from retention.views.text_protected import MOST_READERS, protected_text
from tests.retention.planners.test_delete_segments import FORMATS, NOW, opened_at
from tests.support.topic_crashes import NAME

EXPIRY = RULES.index(MESSAGE_EXPIRY)
SINCE = "2027-01-15T08:00:00Z"


def held_of(plan: BoundPlan) -> ProtectedSegments:
    held = plan.plan.held_segments
    assert isinstance(held, ProtectedSegments)
    return held


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("profile", ["modern", "v8"])
def test_a_plan_says_what_waits_for_whom_and_since_when(
    format_: str, profile: str, tmp_path: Path
) -> None:
    topic = opened_at(tmp_path, format_, message_expiry="1s", profile=profile).topic(NAME)
    topic.store_offset(0, "group", 3, 4)
    plan = topic.plan()
    held = held_of(plan)
    [partition] = held.partitions
    assert (held.segments, held.messages, partition.by_rule) == (2, 20, {MESSAGE_EXPIRY: 20})
    assert [
        (one.kind, one.name, one.offset, one.segments, one.messages, one.stored_ns)
        for one in partition.readers
    ] == [
        ("group", "3", 4, 2, 20, NOW),
        ("consumer", "7", 12, 1, 10, NOW),
    ]
    assert held.bytes == partition.bytes == partition.readers[0].bytes
    assert held.bytes == 2 * partition.readers[1].bytes
    shown = repr(plan)
    assert "2 segments (20 messages, " in shown
    assert f"wait for group 3, which has read up to 4 since {SINCE}" in shown
    assert f"waits for consumer 7, which has read up to 12 since {SINCE}" in shown
    assert shown.splitlines()[-3:] == [f"  {line}" for line in protected_text(held.as_json())]
    assert "wait for group 3" in plan._repr_html_()
    assert plan.plan.summary()["held"] == json.loads(json.dumps(held.as_json()))
    assert "group 3 has read up to 4" in topic.explain(3).sentence
    assert [one.held_back for one in topic.state().topic.partitions] == [20, 0]  # type: ignore[union-attr]
    assert topic.plan().apply().held == held.as_json()

    plan = topic.plan()
    plan.save(tmp_path / "saved.json")
    [loaded] = load_plans(str(tmp_path / "saved.json"))
    assert loaded.held_segments == held
    topic.store_offset(0, "group", 3, 29)
    topic.store_offset(0, "consumer", "7", 29)
    assert held_of(topic.plan()) == ProtectedSegments()
    assert "held back" not in repr(topic.plan())


@pytest.mark.parametrize("format_", FORMATS)
def test_a_removal_of_segments_says_what_it_waits_for(format_: str, tmp_path: Path) -> None:
    topic = opened_at(tmp_path, format_).topic(NAME)
    held = held_of(topic.delete_segments(0, 2))
    assert [(one.partition, one.by_rule) for one in held.partitions] == [
        (0, {"delete_segments": 10})
    ]
    assert "1 segment (10 messages, " in repr(topic.delete_segments(0, 2))


@pytest.mark.parametrize("format_", FORMATS)
def test_where_offsets_are_not_respected_nothing_is_said_to_be_held(
    format_: str, tmp_path: Path
) -> None:
    topic = opened_at(tmp_path, format_, message_expiry="1s", respect_consumer_offsets=False)
    assert topic.topic(NAME).plan().plan.held_segments is None
    assert "held" not in topic.topic(NAME).plan().plan.summary()


def test_of_many_readers_the_slowest_are_named_and_the_rest_counted() -> None:
    readers = {Reader(0, "consumer", str(one)): StoredOffset(one, 0) for one in range(100)}
    files = files_of([(0, 0, 200, 5)])
    held = protected_segments(files, np.array([EXPIRY]), Offsets(of=readers))
    lines = protected_text(held.as_json())
    assert len(lines) == 1 + MOST_READERS + 1
    assert lines[-1] == "  and 88 more readers of partitions"
    assert "consumer 0," in lines[1]


def files_of(rows: list[tuple[int, int, int, int]]) -> pa.Table:
    """Files of partition, segment, last offset and messages."""
    names = ("partition", "segment", "max_seq", "messages")
    said = [dict(zip(names, row, strict=True)) | {"bytes": row[3] * 100} for row in rows]
    columns = {name: [row.get(name) for row in said] for name in FILE_STATS.names}
    return pa.Table.from_pydict(columns, schema=FILE_STATS)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12),
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 8, 9, 10, 19, 20, 29, 60])),
        max_size=6,
        unique=True,
    ),
)
def test_the_sums_are_those_of_counting_segment_by_segment(
    segments: list[tuple[int, bool]], readers: list[tuple[int, int]]
) -> None:
    rows, waiting = [], []
    for partition in range(4):
        mine = [held for where, held in segments if where == partition]
        rows += [(partition, at * 10, at * 10 + 9, at + 1) for at in range(len(mine))]
        waiting += mine
    offsets = {
        Reader(where, "consumer", str(name)): StoredOffset(offset, name)
        for name, (where, offset) in enumerate(readers)
    }
    rules = np.where(np.array(waiting, dtype=bool), EXPIRY, STAYS)
    held = protected_segments(files_of(rows), rules, Offsets(of=offsets))
    counted = [row for row, is_held in zip(rows, waiting, strict=True) if is_held]
    assert (held.segments, held.messages) == (len(counted), sum(row[3] for row in counted))
    for told in held.partitions:
        those = [row for row in counted if row[0] == told.partition]
        assert (told.segments, told.bytes) == (len(those), 100 * told.messages)
        for reader in told.readers:
            ahead = [row for row in those if row[2] > reader.offset]
            assert (reader.segments, reader.messages) == (len(ahead), sum(row[3] for row in ahead))
            assert reader.segments
    assert protected_segments_from_json(json.loads(json.dumps(held.as_json()))) == held


@pytest.mark.parametrize("format_", FORMATS)
def test_every_plan_says_what_is_held_also_if_nothing_goes(format_: str, tmp_path: Path) -> None:
    topic = opened_at(tmp_path, format_, message_expiry="1s").topic(NAME)
    topic.store_offset(1, "group", 3, 0)
    topic.plan().apply()
    told = [held_of(topic.plan()) for _ in range(3)]
    assert topic.plan().plan.is_empty
    assert told[0].segments == 2
    assert told == told[:1] * 3
