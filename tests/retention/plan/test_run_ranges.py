from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given

from retention.core.policy import Policy
from retention.core.record_tables import check_ranges
from retention.plan.run_ranges import ranges_of_files, ranges_of_plan
from retention.schemas.runs import RUN_RANGES
from tests.support.laws import law
from tests.support.worlds import Message, World, instants, plan_of, policies, update, worlds


def taken(world: World, ranges: pa.Table) -> dict[int, set[str]]:
    """Sequence → the rules that may have removed it, by ranges; each sequence is in exactly one range."""
    gone: dict[int, set[str]] = {}
    for row in ranges.to_pylist():
        excepted = list(zip(row["except_firsts"], row["except_lasts"], strict=True))
        seqs = [
            seq
            for seq in world.rows(row["path"])["seq"].to_pylist()
            if row["first_seq"] <= seq <= row["last_seq"]
            and not any(first <= seq <= last for first, last in excepted)
        ]
        assert len(seqs) == row["messages"] == sum(row["counts"])
        assert not gone.keys() & set(seqs)
        gone |= {seq: set(row["rules"]) for seq in seqs}
    return gone


@law
@given(worlds, policies, instants)
def test_ranges_are_exactly_the_messages_that_a_plan_takes(
    world: World, policy: Policy, as_of: int
) -> None:
    expected = update(world.messages, policy, as_of)
    ranges = pa.concat_tables(ranges_of_plan(plan_of(world, policy, as_of)))
    check_ranges(ranges, RUN_RANGES)
    gone = taken(world, ranges)
    assert set(gone) == set(expected)
    assert all(rule in gone[seq] for seq, rule in expected.items())
    counted: Counter[str] = Counter()
    for row in ranges.to_pylist():
        counted.update(dict(zip(row["rules"], row["counts"], strict=True)))
    assert +counted == Counter(expected.values())
    sizes = {message.seq: message.size for message in world.messages}
    assert sum(ranges["bytes"].to_pylist()) == sum(sizes[seq] for seq in expected)


SIX = [Message(seq, "a", seq, size=1, never=False) for seq in range(1, 7)]
INTERLEAVED = World(((1, tuple(SIX[::2])), (1, tuple(SIX[1::2]))), 11)


def test_a_rule_removes_interleaved_files_whole_and_two_rules_are_told_apart() -> None:
    by_one, by_two = (
        pa.concat_tables(ranges_of_plan(plan_of(INTERLEAVED, policy, 30)))
        for policy in (Policy(max_age_ns=1), Policy(max_msgs=3, max_age_ns=1))
    )
    assert by_one["counts"].to_pylist() == [[3], [3]]
    assert taken(INTERLEAVED, by_one) == {seq: {"max_age"} for seq in range(1, 7)}
    rules = {seq: {"max_msgs" if seq < 4 else "max_age"} for seq in range(1, 7)}
    assert taken(INTERLEAVED, by_two) == rules


def files(*rows: tuple[str, int, int, int]) -> pa.Table:
    """Files with the columns for ranges: name, messages, lowest and highest sequence."""
    names, messages, lowest, highest = zip(*rows, strict=True)
    return pa.table(
        {
            "path": [f"partition=0/segment=1/{name}.parquet" for name in names],
            "partition": pa.array([0] * len(rows), pa.int32()),
            "segment": pa.array([1] * len(rows), pa.int64()),
            "messages": pa.array(messages, pa.int64()),
            "bytes": pa.array(messages, pa.int64()),
            "min_seq": pa.array(lowest, pa.int64()),
            "max_seq": pa.array(highest, pa.int64()),
        }
    )


def shown(table: pa.Table) -> list[tuple[object, ...]]:
    columns = ("first_seq", "last_seq", "messages", "rules", "except_firsts", "except_lasts")
    return [tuple(row[name] for name in columns) for row in table.to_pylist()]


def test_a_repair_removes_whole_files_by_no_rule() -> None:
    table = ranges_of_files(files(("a", 5, 6, 12), ("b", 3, 20, 22)), {})
    assert shown(table) == [(6, 12, 5, [], [], []), (20, 22, 3, [], [], [])]
    assert table["counts"].to_pylist() == [[], []]


def test_a_replaced_file_has_the_removed_ranges() -> None:
    lost = {"partition=0/segment=1/a.parquet": np.array([[3, 4], [7, 7]])}
    table = ranges_of_files(files(("a", 9, 1, 9)), lost)
    assert shown(table) == [(3, 4, 2, [], [], []), (7, 7, 1, [], [], [])]
