"""The index of a stream: the order of its files, and the counters proved by files."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from retention.core.counters import Counters
from retention.stores.checks import inventory

KEYS = [(0, 1, 1), (0, 1, 4), (0, 9, 9), (1, 0, 0), (1, 7, 8)]


def listed(keys: list[tuple[int, int, int]]) -> pa.Table:
    columns = dict(zip(("partition", "segment", "min_seq"), zip(*keys, strict=True), strict=True))
    return pa.table({name: list(values) for name, values in columns.items()}).append_column(
        "path", pa.array([f"{number}" for number in range(len(keys))])
    )


@pytest.mark.parametrize("seed", range(5))
def test_files_in_any_order_come_out_in_order(seed: int) -> None:
    shuffled = random.Random(seed).sample(KEYS, len(KEYS))
    sorted_rows = inventory.in_order(listed(shuffled)).drop_columns(["path"]).to_pylist()
    assert [tuple(row.values()) for row in sorted_rows] == KEYS


def test_files_of_equal_ranges_are_sorted_by_path() -> None:
    twice = listed([(0, 1, 1), (0, 1, 1)])
    backwards = twice.set_column(3, "path", pa.array(["b", "a"]))
    assert inventory.in_order(backwards)["path"].to_pylist() == ["a", "b"]


def test_files_prove_counters_only_upwards_and_only_where_something_is_known() -> None:
    files = pa.table(
        {
            "partition": pa.array([1, 0, None, 1, 2], pa.int32()),
            "segment": pa.array([5, 1, 80, 3, 4]),
            "max_seq": pa.array([6, 2, 90, 9, None], pa.int64()),
        }
    )
    counters = inventory.effective(Counters({0: 50, 1: 4}, {1: 2, 2: 11}), files)
    assert dict(counters.next_seq) == {0: 50, 1: 10}
    assert dict(counters.open_base) == {0: 1, 1: 5, 2: 11}


def test_no_files_prove_nothing() -> None:
    empty = pa.table(
        {name: pa.array([], pa.int64()) for name in ("partition", "segment", "max_seq")}
    )
    assert dict(inventory.effective(Counters({0: 7}), empty).next_seq) == {0: 7}
