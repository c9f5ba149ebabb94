from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from retention.core.policy import Policy
from retention.errors import DamagedError, RefusedError, RetentionError, StalePlanError, UsageError
from retention.plan import loaded_ranges, removed_ranges, saved_tables
from retention.plan.actions import Actions
from retention.plan.plan import Plan
from retention.plan.planfile import load_plans, save_plans
from retention.plan.removed_ranges import RemovedRanges
from tests.support.worlds import Message, World, plan_of


@pytest.fixture(params=["few", "many"])
def saved(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "many":
        # Force all saved data to exceed the limits of memory and of pieces.
        for of, name in (
            (loaded_ranges, "MOST_IN_MEMORY"),
            (loaded_ranges, "_OF_PART"),
            (removed_ranges, "AT_A_TIME"),
            (saved_tables, "READ_VALUES"),
        ):
            monkeypatch.setattr(of, name, 1)
    location = str(tmp_path / "plan.json")
    save_plans(location, two_plans())
    return location


def two_plans() -> list[Plan]:
    messages = tuple(Message(seq, "ab"[seq % 2], seq, 10, never=False) for seq in range(1, 21))
    world = World(((1, messages[:10]), (11, messages[10:])), open_base=11)
    policies = (Policy(max_msgs_per_subject=3), Policy(max_age_ns=15))
    return [plan_of(world, policy, 30) for policy in policies]


def scattered_plans() -> list[Plan]:
    """Plans of three files with four ranges each from rows: one removes them, one removes nothing."""
    messages = [
        Message(seq, "a" if seq % 5 else f"k{seq}", seq, 10, never=False) for seq in range(1, 62)
    ]
    files = tuple((first, tuple(messages[first - 1 : first + 19])) for first in (1, 21, 41))
    world = World((*files, (61, (messages[60],))), open_base=61)
    plan = plan_of(world, Policy(max_msgs_per_subject=1), 30)
    return [plan, replace(plan, effects=Actions())]


def edited(location: str, **changes: Any) -> None:
    document = json.loads(Path(location).read_text()) | changes
    Path(location).write_text(json.dumps(document))


def test_a_plan_comes_back_as_it_was_saved(saved: str) -> None:
    first, second = load_plans(saved)
    assert (first.removed_messages, second.removed_messages) == (14, 15)
    assert first.header.policy == Policy(max_msgs_per_subject=3)
    again = saved + ".again"
    save_plans(again, [first, second])
    assert Path(again).read_text() == Path(saved).read_text()


def test_the_ranges_of_a_plan_and_of_its_cause_come_back(saved: str) -> None:
    plans = scattered_plans()
    assert [len(plan.actions.removed.table) for plan in plans] == [12, 0]
    save_plans(saved, plans)
    for loaded, plan in zip(load_plans(saved), plans, strict=True):
        assert loaded.actions.removed.table == plan.actions.removed.table
        assert loaded.plan_id == plan.plan_id
        for ranges in (loaded.actions.removed, loaded.cause.parts):
            # Many ranges are not held in memory.
            assert ranges.in_memory.num_rows == (0 if ranges.parts else len(ranges.table))
            assert bool(ranges.parts) is (len(ranges.table) > loaded_ranges.MOST_IN_MEMORY)
    _, whole = load_plans(saved)
    assert whole.cause.parts.table == plans[1].cause.parts.table
    assert len(whole.cause.parts.table) == 12
    assert whole.cause.files.num_rows == 4


def test_nobody_asks_for_all_ranges_at_once(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = scattered_plans()
    everything = property(lambda _: pytest.fail("all ranges at once"))
    monkeypatch.setattr(RemovedRanges, "table", everything)
    save_plans(saved, plans)
    for plan in load_plans(saved):
        assert plan.cause.files.num_rows == 4


def test_the_bytes_of_a_saved_plan_do_not_tell_how_its_ranges_were_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_tables, "GROUP_VALUES", 5)
    saved = []
    for most in (1, 4, 6, 1000):
        monkeypatch.setattr(removed_ranges, "AT_A_TIME", most)
        location = tmp_path / f"{most}" / "plan.json"
        location.parent.mkdir()
        save_plans(str(location), scattered_plans())
        saved.append({file.name: file.read_bytes() for file in location.parent.iterdir()})
    assert all(files == saved[0] for files in saved)
    removed = pq.read_metadata(f"{location}.removed.parquet")
    rows = [removed.row_group(at).num_rows for at in range(removed.num_row_groups)]
    assert rows == [5, 5, 2]
    cause = pq.ParquetFile(f"{location}.cause.parquet")
    lists = [cause.read_row_group(at)["sizes"] for at in range(cause.metadata.num_row_groups)]
    assert max(len(pc.list_flatten(sizes)) for sizes in lists) == 4


def test_plans_that_an_earlier_version_saved_are_read(saved: str) -> None:
    plans = scattered_plans()
    save_plans(saved, plans)
    digests = {}
    for part in ("files", "rules", "removed", "markers", "cause"):
        beside = Path(f"{saved}.{part}.parquet")
        pq.write_table(pq.read_table(beside), beside, compression="zstd", write_statistics=False)
        digests[part] = hashlib.sha256(beside.read_bytes()).hexdigest()
    edited(saved, sha256=digests)
    assert [plan.actions.removed.table for plan in load_plans(saved)] == [
        plan.actions.removed.table for plan in plans
    ]


def test_a_saved_plan_is_a_document_that_people_can_review(saved: str) -> None:
    plan = json.loads(Path(saved).read_text())["plans"][0]
    assert plan["by_rule"] == {"max_msgs_per_subject": 14}
    assert plan["segments"] == {"dropped": 1, "rewritten": 1, "kept": 0}


@pytest.mark.parametrize("part", ["files", "rules", "removed", "markers", "cause"])
def test_a_flipped_bit_is_found(saved: str, part: str) -> None:
    beside = Path(f"{saved}.{part}.parquet")
    content = bytearray(beside.read_bytes())
    content[len(content) // 2] ^= 1
    beside.write_bytes(bytes(content))
    with pytest.raises(DamagedError, match="not as written"):
        load_plans(saved)


def test_a_plan_whose_decision_was_edited_is_refused(saved: str) -> None:
    plans = json.loads(Path(saved).read_text())["plans"]
    plans[0]["as_of_ns"] += 1
    edited(saved, plans=plans)
    with pytest.raises(DamagedError, match="does not have the identity it claims"):
        load_plans(saved)


def test_the_files_of_a_cause_are_decoded_when_they_are_asked_for(saved: str) -> None:
    beside = Path(f"{saved}.cause.parquet")
    table = pq.read_table(beside)
    at, field = table.column_names.index("rules"), table.schema.field("rules")
    rules = pa.array([[99]] * len(table), field.type)
    pq.write_table(table.set_column(at, field, rules), beside)
    digests = json.loads(Path(saved).read_text())["sha256"]
    edited(saved, sha256=digests | {"cause": hashlib.sha256(beside.read_bytes()).hexdigest()})
    for plan in load_plans(saved):
        assert not plan.cause.refused
        with pytest.raises(DamagedError, match=r"this saved plan is damaged: .*rules.*plan again"):
            _ = plan.cause.files


def test_a_newer_format_is_refused_by_number(saved: str) -> None:
    edited(saved, format_version=99)
    with pytest.raises(RefusedError, match="plan format 99"):
        load_plans(saved)


def test_an_older_format_is_refused_by_number(saved: str) -> None:
    edited(saved, format_version=1)
    with pytest.raises(StalePlanError, match=r"plan format 1, .*plan again"):
        load_plans(saved)


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[1]", "[" * 100_000, '{"kind": "x", "format_version": 1, "plans": []}', "flights"],
)
def test_other_files_are_no_plans(tmp_path: Path, content: str) -> None:
    other = tmp_path / "other"
    other.write_text(content)
    with pytest.raises(UsageError, match="not a plan file"):
        load_plans(str(other))


def test_a_missing_file_is_neither_stream_nor_plan(tmp_path: Path) -> None:
    with pytest.raises(RetentionError, match="no such stream and no such plan file"):
        load_plans(str(tmp_path / "none"))
