"""The tests of `make test` include one of each group that differs only in the format."""

from __future__ import annotations

from tests.support.shares import left_out

A = ["a.py::test[delta-x]", "a.py::test[parquet-x]", "a.py::test[delta-y]", "a.py::test[parquet-y]"]
B = ["b.py::test[x-delta]", "b.py::test[x-parquet]", "b.py::test[x-delta-2]"]
OTHERS = ["c.py::test", "c.py::test[parquet]", "c.py::test[deltas]", "c.py::test_delta"]


def test_one_of_each_is_left_and_the_formats_take_turns() -> None:
    assert set(A) - left_out([*A, *OTHERS]) == {A[0], A[3]}
    assert set(A + B) - left_out([*A, *B]) == {A[0], A[3], B[0], B[2]}


def test_what_is_there_once_is_never_left_out() -> None:
    assert left_out(OTHERS) == set()
