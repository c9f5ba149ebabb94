"""The share of tests in `make test`: one format and one case of many, by turns, and a part of the costly ones."""

from __future__ import annotations

from tests.support.shares import (
    all_but_a_ninth,
    all_but_a_third,
    all_but_one_case,
    all_but_one_format,
)

A = ["a.py::test[delta-x]", "a.py::test[parquet-x]", "a.py::test[delta-y]", "a.py::test[parquet-y]"]
B = ["b.py::test[x-delta]", "b.py::test[x-parquet]", "b.py::test[x-delta-2]"]
OTHERS = ["c.py::test", "c.py::test[parquet]", "c.py::test[deltas]", "c.py::test_delta"]


def test_one_of_each_format_remains_and_the_formats_take_turns() -> None:
    assert set(A) - all_but_one_format([*A, *OTHERS]) == {A[0], A[3]}
    assert set(A + B) - all_but_one_format([*A, *B]) == {A[0], A[3], B[0], B[2]}


def test_a_test_of_one_format_is_never_left_out() -> None:
    assert all_but_one_format(OTHERS) == set()


def test_one_case_of_each_function_remains_and_the_cases_take_turns() -> None:
    assert set(A + B) - all_but_one_case([*A, *B]) == {A[0], B[1]}


def test_each_file_keeps_a_third_and_its_first_test() -> None:
    assert set(A + B) - all_but_a_third([*A, *B]) == {A[0], A[3], B[0]}


def test_each_folder_keeps_a_ninth_and_its_first_test() -> None:
    slow = [f"tests/{folder}/a.py::test_{number}" for folder in "xy" for number in range(10)]
    assert set(slow) - all_but_a_ninth(slow) == {slow[0], slow[9], slow[10], slow[19]}
