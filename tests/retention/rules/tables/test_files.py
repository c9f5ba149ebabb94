from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from retention.core.table_policy import LIMITS, RowPolicy, TableColumns, TableLimits, TablePolicy
from retention.rules.tables.files import ROWS, STAYS, decide_files, files_beyond_bytes
from retention.rules.tables.rows import RowRules, dead_rows
from retention.rules.tables.ticks import TimeColumn, TimeColumns
from tests.support.laws import law
from tests.support.table_worlds import AS_OF_NS, TIMES, TableWorld, lost, removed, table_worlds


@law
@given(table_worlds())
def test_bounds_and_the_rows_that_they_ask_for_decide_like_all_rows(world: TableWorld) -> None:
    files = world.bounds()
    decided = decide_files(files, world.policy, TIMES, AS_OF_NS)
    rules = RowRules(world.policy, TIMES, AS_OF_NS)
    rows, _ = rules.expire(world.narrow(decided.to_read))
    rows = rules.cut_keys(rows)
    rows, _ = rules.cut_counts(rows, decided.newer_rows)
    gone = lost(dead_rows(rows))
    for number, verdict in enumerate(decided.verdicts):
        if verdict >= 0:
            gone |= {(row.file, row.row): LIMITS[verdict] for row in world.files[number]}
    empty = [all((row.file, row.row) in gone for row in file) for file in world.files]
    beyond = files_beyond_bytes(files, world.policy, decided.possible, np.array(empty, bool))
    for number in np.flatnonzero(beyond).tolist():
        gone = {(row.file, row.row): "max_bytes" for row in world.files[number]} | gone
    assert gone == removed(world)


def bounded(*files: tuple[int | None, ...]) -> pa.Table:
    """Files as (rows, first time, last time, null times)."""
    names = ("rows", "time_min", "time_max", "time_nulls")
    columns = {
        name: pa.array(values, pa.int64())
        for name, values in zip(names, zip(*files, strict=True), strict=True)
    }
    return pa.table({**columns, "bytes": columns["rows"]})


def verdicts(files: pa.Table, **limits: Any) -> list[str]:
    policy = TablePolicy(TableColumns(time=("time",)), TableLimits(**limits))
    decided = decide_files(files, policy, TimeColumns(TimeColumn("timestamp")), AS_OF_NS)
    return [NAMES[verdict] for verdict in decided.verdicts]


NAMES = {ROWS: "rows", STAYS: "stays", **dict(enumerate(LIMITS))}
CASES: dict[str, tuple[pa.Table, dict[str, Any], list[str]]] = {
    "the file of the boundary decides by rows": (
        bounded((9, 1, 49, 0), (9, 50, 51, 0), (9, 51, 99, 0)),
        {"max_age_ns": 50_000},
        ["max_age", "rows", "stays"],
    ),
    "null times, or an unknown number of them, need rows": (
        bounded((9, 1, 9, 1), (9, 1, 9, None), (9, None, None, 9), (9, None, None, None)),
        {"max_age_ns": 50_000},
        ["rows", "rows", "stays", "rows"],
    ),
    "a file without rows stays": (bounded((0, None, None, 0)), {"max_age_ns": 0}, ["stays"]),
    "the file in which a count ends decides by rows": (
        bounded((100, 1, 9, 0), (100, 10, 19, 0), (100, 20, 29, 0), (100, 30, 39, 0)),
        {"max_rows": 250},
        ["max_rows", "rows", "stays", "stays"],
    ),
    "a count that ends between files needs no rows": (
        bounded((100, 1, 9, 0), (100, 10, 19, 0), (100, 20, 29, 0)),
        {"max_rows": 200},
        ["max_rows", "stays", "stays"],
    ),
    "files of one time need rows if the count ends among them": (
        bounded((100, 1, 9, 0), (100, 9, 19, 0), (100, 20, 29, 0)),
        {"max_rows": 200},
        ["rows", "rows", "stays"],
    ),
    "a count is not certain before age has been decided": (
        bounded((100, 1, 9, 0), (100, 40, 60, 0), (100, 61, 70, 0)),
        {"max_rows": 150, "max_age_ns": 50_000},
        ["max_age", "rows", "stays"],
    ),
    "rows without a time do not count": (
        bounded((100, 1, 9, 90), (100, 10, 19, 50), (100, 20, 29, 0)),
        {"max_rows": 160},
        ["stays", "stays", "stays"],
    ),
    "a file beyond a count needs rows if some have no time": (
        bounded((100, 1, 9, 10), (100, 20, 29, 0)),
        {"max_rows": 100},
        ["rows", "stays"],
    ),
    "a limit by key needs the rows that age leaves": (
        bounded((9, 1, 49, 0), (9, 60, 99, 0)),
        {"max_age_ns": 50_000, "max_rows_per_key": 1},
        ["max_age", "rows"],
    ),
    "bytes of whole files need no rows": (bounded((9, 1, 9, 0)), {"max_bytes": 0}, ["stays"]),
}


@pytest.mark.parametrize("case", CASES)
def test_only_files_that_a_limit_may_cut_are_read(case: str) -> None:
    files, limits, expected = CASES[case]
    assert verdicts(files, **limits) == expected


@pytest.mark.parametrize(
    ("most", "gone", "beyond"),
    [
        (250, [], [0]),
        (200, [], [0, 1]),
        (0, [], [0, 1, 3]),
        (250, [0], []),
        (400, [], []),
        (300, [], [0]),
    ],
)
def test_whole_files_go_while_the_rest_exceeds_the_bytes(
    most: int, gone: list[int], beyond: list[int]
) -> None:
    files = bounded((100, 1, 9, 0), (100, 10, 19, 0), (100, None, None, None), (100, 20, 29, 0))
    policy = TablePolicy(TableColumns(time=("time",)), TableLimits(max_bytes=most))
    possible = np.ones((4, 1), bool)
    mask = np.isin(np.arange(4), gone)
    assert np.flatnonzero(files_beyond_bytes(files, policy, possible, mask)).tolist() == beyond


def test_a_file_of_one_policy_is_decided_by_its_limits_alone() -> None:
    where = pa.table({"where_0": ["a", "b"], "where_0_is_constant": [True, True]})
    files = bounded((9, 1, 9, 0), (9, 1, 9, 0))
    for name in where.column_names:
        files = files.append_column(name, where[name])
    acme = RowPolicy(((("tenant",), ("a",)),), TableLimits(), frozenset({"max_rows_per_key"}))
    policy = TablePolicy(TableColumns(("time",)), TableLimits(max_rows_per_key=1), (acme,))
    decided = decide_files(files, policy, TimeColumns(TimeColumn("timestamp")), AS_OF_NS)
    assert decided.verdicts.tolist() == [STAYS, ROWS]
