from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.core.policy import Policy
from retention.plan.actions import Actions
from retention.plan.identity import identity, part_digests
from retention.plan.no_actions import NO_ACTIONS
from retention.plan.plan import Plan
from retention.plan.planfile import load_plans, save_plans
from retention.plan.removed_ranges import RemovedRanges
from retention.plan.rule_rows import (
    numbered_parts,
    planned_parts,
    rule_column,
    rule_counts,
    rule_numbers,
    rule_rows,
)
from retention.schemas.rule_names import RULE_NAMES
from tests.support.worlds import Message, World, plan_of


@pytest.fixture
def plan() -> Plan:
    """Three segments of two files each; some lose all and some a part, by two rules."""
    messages = [Message(seq, "ab"[seq % 2], seq, 10, never=False) for seq in range(1, 31)]
    files = tuple((at // 10 * 10 + 1, tuple(messages[at : at + 5])) for at in range(0, 30, 5))
    return plan_of(World(files, 21), Policy(max_msgs=23, max_msgs_per_subject=4), 30)


def table_of(plan: Plan, name: str) -> pa.Table:
    if name == "removed":
        return planned_parts(plan.actions.removed.table)
    return getattr(plan.actions, name)


def test_the_identity_is_the_same_however_tables_are_cut(plan: Plan) -> None:
    cut: dict[str, Any] = {
        name: pa.concat_tables([table.slice(at, 1) for at in range(table.num_rows)])
        for name in ("files", "rules", "removed")
        for table in [table_of(plan, name)]
    }
    cut["removed"] = RemovedRanges(numbered_parts(cut["removed"]))
    assert replace(plan, effects=replace(plan.actions, **cut)).plan_id == plan.plan_id


def test_a_plan_without_actions_is_one_with_actions_on_nothing(plan: Plan) -> None:
    nothing, rowless = replace(plan, effects=NO_ACTIONS), replace(plan, effects=Actions())
    assert nothing.plan_id == rowless.plan_id
    assert nothing.summary() == rowless.summary()
    assert (nothing.is_empty, nothing.bytes_rewritten) == (rowless.is_empty, 0)
    assert nothing.removes_as(rowless)


def test_a_saved_plan_has_the_identity_of_the_plan(plan: Plan, tmp_path: Path) -> None:
    location = str(tmp_path / "plan.json")
    save_plans(location, [plan, plan])
    assert [loaded.plan_id for loaded in load_plans(location)] == [plan.plan_id] * 2


def test_nothing_moves_from_value_to_value_unseen() -> None:
    columns: list[list[int | str | None]] = [
        [0, None],
        [None, 0],
        [0, 0],
        [0, 1],
        [256, 0],
        ["a", "bc"],
        ["ab", "c"],
        ["", "abc"],
    ]
    tables = [pa.table({"x": values}) for values in columns]
    tables += [table.slice(0, rows) for table in tables[:1] for rows in (0, 1)]
    known = {identity({}, some, ()) for some in [[], *([table] for table in tables), tables[:2]]}
    assert len(known) == len(tables) + 2
    joined = pa.concat_tables([tables[5], tables[6]])
    assert identity({}, [joined.slice(1, 2)], ()) == identity(
        {}, [pa.table({"x": ["bc", "ab"]})], ()
    )


def test_parts_are_digested_segment_by_segment() -> None:
    messages = [Message(seq, "aab"[seq % 3], seq, 10, never=False) for seq in range(1, 31)]
    files = tuple((at // 10 * 10 + 1, tuple(messages[at : at + 5])) for at in range(0, 30, 5))
    plan = plan_of(World(files, 21), Policy(max_msgs_per_subject=10), 30)
    whole = list(part_digests(plan.actions.files, plan.actions.removed))
    segments = plan.actions.files["segment"].to_pylist()
    apart: list[bytes] = []
    for base in sorted(set(segments)):
        first, end = segments.index(base), len(segments) - segments[::-1].index(base)
        numbers = np.arange(plan.actions.files.num_rows) - first
        numbers[end:] = -1
        rows = plan.actions.removed.renumbered(numbers)
        apart += part_digests(plan.actions.files.slice(first, end - first), rows)
    assert whole == apart
    assert len(set(whole)) == len(whole) == 2


@pytest.mark.parametrize("name", ["files", "rules", "removed"])
def test_every_number_of_every_row_is_in_it(plan: Plan, name: str) -> None:
    table = table_of(plan, name)
    known = {plan.plan_id}
    for at, field in enumerate(table.schema):
        if field.name == "file":
            continue
        for row in range(table.num_rows):
            values = table[field.name].to_pylist()
            values[row] = _other(values[row])
            column = pa.array(values).cast(field.type)
            other: Any = table.set_column(at, field, column)
            if name == "removed":
                other = RemovedRanges(numbered_parts(other))
            changed = replace(plan, effects=replace(plan.actions, **{name: other}))
            known.add(changed.plan_id)
    columns = set(table.column_names) - {"file"}
    assert len(known) == 1 + table.num_rows * len(columns)


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return RULE_NAMES[RULE_NAMES.index(value) - 1] if value in RULE_NAMES else f"{value}x"
    return 77 if value is None else value + 1


def test_rules_are_rows_that_name_them(plan: Plan) -> None:
    counts = rule_counts(plan.actions.rules, plan.actions.files.num_rows)
    assert counts.sum(axis=1).tolist() == plan.actions.files["removed_messages"].to_pylist()
    again = rule_rows(counts, plan.actions.files["removed_bytes"].to_numpy())
    assert again.equals(plan.actions.rules.combine_chunks())
    assert set(plan.actions.rules["rule"].to_pylist()) == {"max_msgs", "max_msgs_per_subject"}
    shared = [row for row in plan.actions.rules.to_pylist() if row["bytes"] is None]
    assert len({row["file"] for row in shared}) == 1
    assert plan.actions.files_with_rules["by_max_msgs"].to_pylist()[:2] == [5, 2]


def test_a_rule_that_is_none_is_refused() -> None:
    assert rule_numbers(pa.chunked_array([rule_column(pa.array([3]).to_numpy())])).tolist() == [3]
    with pytest.raises(ValueError, match="rule names an unknown rule"):
        rule_numbers(pa.chunked_array([["max_age", "magic"]]))
