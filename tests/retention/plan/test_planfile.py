from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.core.policy import Policy
from retention.errors import DamagedError, RefusedError, RetentionError, StalePlanError, UsageError
from retention.plan.planfile import load_plans, save_plans
from tests.support.worlds import Message, World, plan_of


@pytest.fixture
def saved(tmp_path: Path) -> str:
    messages = tuple(Message(seq, "ab"[seq % 2], seq, 10, never=False) for seq in range(1, 21))
    world = World(((1, messages[:10]), (11, messages[10:])), open_base=11)
    location = str(tmp_path / "plan.json")
    plans = [
        plan_of(world, policy, 30)
        for policy in (Policy(max_msgs_per_subject=3), Policy(max_age_ns=15))
    ]
    save_plans(location, plans)
    return location


def edited(location: str, **changes: Any) -> None:
    document = json.loads(Path(location).read_text()) | changes
    Path(location).write_text(json.dumps(document))


def test_a_plan_comes_back_as_it_was_saved(saved: str) -> None:
    first, second = load_plans(saved)
    assert (first.removed_messages, second.removed_messages) == (14, 15)
    assert first.policy == Policy(max_msgs_per_subject=3)
    again = saved + ".again"
    save_plans(again, [first, second])
    assert Path(again).read_text() == Path(saved).read_text()


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
    with pytest.raises(DamagedError, match="not what was written"):
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
