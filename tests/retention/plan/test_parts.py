from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from retention.core.policy import Policy
from retention.errors import DamagedError
from retention.plan.actions import Drop, Mark, Rewrite, Tombstone
from retention.plan.parts import PartInMemory, ranges_by_file, write_part
from retention.plan.plan import Plan
from schemas.plan import PLANNED_PARTS
from tests.support.worlds import Message, World, plan_of


@pytest.fixture
def plan() -> Plan:
    """Of 1 to 5, 6 to 10 and 11 to 15 the first file goes whole, and 6 and 7 of the second."""
    messages = [Message(seq, "a", seq, 10, never=False) for seq in range(1, 16)]
    files = tuple((at + 1, tuple(messages[at : at + 5])) for at in (0, 5, 10))
    return plan_of(World(files, 11), Policy(max_msgs=8), 30)


def test_actions_are_of_every_kind_that_does_something(plan: Plan) -> None:
    assert [type(action) for action in plan.actions] == [Drop, Rewrite]
    assert plan.actions.drop.files["max_seq"].to_pylist() == [5]
    assert [ranges.tolist() for ranges in plan.actions.rewrite.ranges()] == [[[6, 7]]]
    assert list(replace(plan.actions, sequences=(16, 18)))[-1] == Mark(plan.markers, 16, 18)
    hidden = plan.files.set_column(
        plan.files.schema.get_field_index("action"),
        plan.files.schema.field("action"),
        [["drop", "tombstone"]],
    )
    stays = replace(plan.actions, files=hidden)
    assert [type(action) for action in stays] == [Drop, Tombstone]
    assert [ranges.tolist() for ranges in stays.tombstone.ranges()] == [[[6, 7]]]
    assert stays.leaving_with_rules["by_max_msgs"].to_pylist() == [5]


def test_a_part_that_one_has_written_another_reads(plan: Plan, tmp_path: Path) -> None:
    place = str(tmp_path / "part.arrow")
    written = write_part(place, plan.removed)
    assert written.rows().schema == PLANNED_PARTS
    assert written.rows().to_pylist() == PartInMemory(plan.removed).rows().to_pylist()
    numbers = np.array([0, 1])
    [none, some] = ranges_by_file(written, numbers)
    assert (none.tolist(), some.tolist()) == ([], [[6, 7]])


def test_a_part_that_is_not_the_written_one_is_refused(plan: Plan, tmp_path: Path) -> None:
    place = tmp_path / "part.arrow"
    written = write_part(str(place), plan.removed)
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(DamagedError, match="is not what was written"):
        written.rows()
    place.unlink()
    with pytest.raises(DamagedError, match="is missing"):
        written.rows()
