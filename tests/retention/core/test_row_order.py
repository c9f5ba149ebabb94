"""Rows are sorted like Python values, and keys never contradict this order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.row_order import KEY_LENGTH, in_order, is_in_order, key_at, rows_before
from tests.support.laws import law

COLUMNS = ("time", "subject", "payload")
LONG = "x" * KEY_LENGTH
TIMES = st.sampled_from([-(2**63), 0, 1, 2, 2**63 - 1])
TEXTS = st.sampled_from([None, "", "a", "é", "\U0001f600", LONG[1:], LONG, LONG + "a", LONG + "b"])
PAYLOADS = st.none() | st.binary(max_size=2)
ROWS = st.lists(st.tuples(st.integers(0, 2), TEXTS, PAYLOADS), max_size=12) | st.lists(
    st.tuples(st.none() | TIMES, TEXTS, PAYLOADS), max_size=6
)
Row = tuple[int | None, str | None, bytes | None]


def table_of(rows: list[Row]) -> pa.Table:
    times, subjects, payloads = ([row[at] for row in rows] for at in range(3))
    columns = [pa.array(times, pa.int64()), pa.array(subjects), pa.array(payloads, pa.binary())]
    return pa.table([columns[0], columns[1].cast(pa.string()), columns[2]], names=[*COLUMNS])


def ordered(row: Row) -> tuple[Any, ...]:
    time, subject, payload = row
    text = None if subject is None else subject.encode()
    return (
        time is not None,
        time or 0,
        text is not None,
        text or b"",
        payload is not None,
        payload or b"",
    )


@law
@given(ROWS)
def test_rows_come_in_the_order_of_their_values(rows: list[Row]) -> None:
    table = in_order(table_of(rows), COLUMNS)
    assert table.equals(table_of(sorted(rows, key=ordered)))
    assert is_in_order(table, COLUMNS)
    assert is_in_order(table_of(rows), COLUMNS) == (sorted(rows, key=ordered) == rows)


@law
@given(ROWS)
def test_keys_rise_with_the_rows(rows: list[Row]) -> None:
    table = in_order(table_of(rows), COLUMNS)
    keys = [key_at(table, COLUMNS, at) for at in range(len(rows))]
    assert all(before <= behind for before, behind in pairwise(keys))
    for key in keys:
        assert rows_before(table, COLUMNS, key) == sum(other < key for other in keys)


@pytest.mark.parametrize(
    ("texts", "differ"),
    [((LONG[1:] + "a", LONG[1:] + "b"), True), ((LONG + "a", LONG + "b"), False)],
)
def test_a_long_text_is_cut_and_ends_the_key(texts: tuple[str, str], differ: bool) -> None:
    table = table_of([(1, text, bytes([at])) for at, text in enumerate(texts)])
    low, high = (key_at(table, COLUMNS, at) for at in range(2))
    assert (low != high) == differ
    assert len(low) == 4


def test_rows_that_are_in_order_are_not_copied() -> None:
    table = table_of([(1, "a", b""), (2, "a", None)])
    assert in_order(table, COLUMNS) is table
