"""Readers of a data file skip its hidden rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.inventory import DataFile, ExpectedStats
from retention.core.seq_ranges import in_ranges, places_of, union_of_ranges
from retention.datafile.parquet import describe, read_columns, write_messages
from retention.datafile.rewrite import RewriteTask, copy_remaining
from retention.datafile.row_groups import pick_rows, rows_in_order
from retention.ingest.mirror.origin import filtered_rows
from tests.support.laws import law
from tests.support.laying import Laid, rows_of

HIDDEN = np.array([[3, 5], [9, 9], [38, 60]])
LEFT = [1, 2, 6, 7, 8, *range(10, 38)]
COLUMNS = ("seq", "subject", "payload")
Read = Callable[[DataFile], list[pa.Table]]


def hiding(folder: Path, order: list[int]) -> DataFile:
    """A file of messages 1 to 40, in this order, with some of them hidden."""
    location = str(folder / "a.parquet")
    write_messages(location, [rows_of([Laid(seq, "s", seq, b"x") for seq in order])])
    return DataFile(
        "a", 0, 1, location, str(folder / "digest"), ExpectedStats(len(LEFT)), hidden=HIDDEN
    )


def picked(file: DataFile) -> list[pa.Table]:
    return [pick_rows(file, np.arange(1, 41), COLUMNS)]


def copied(file: DataFile) -> list[pa.Table]:
    target = replace(
        file, location=file.location + ".copy", claim=ExpectedStats(), hidden=HIDDEN[:0]
    )
    removed = np.array([[2, 2], [6, 6]])
    assert copy_remaining(RewriteTask(file, (target,), removed)).messages == len(LEFT) - 2
    return [*rows_in_order(target, COLUMNS), pick_rows(file, np.array([2, 6]), COLUMNS)]


READERS: list[Read] = [
    lambda file: [read_columns(file, COLUMNS)[0]],
    lambda file: list(rows_in_order(file, COLUMNS)),
    lambda file: list(
        filtered_rows(file, COLUMNS, lambda rows: np.ones(rows.num_rows, dtype=bool))
    ),
    picked,
    copied,
]


@pytest.mark.parametrize("order", [list(range(1, 41)), list(range(40, 0, -1))])
@pytest.mark.parametrize("read", READERS)
def test_no_reader_sees_what_is_hidden(tmp_path: Path, read: Read, order: list[int]) -> None:
    found = pa.concat_tables(read(hiding(tmp_path, order)))
    assert found.column_names == list(COLUMNS)
    assert sorted(found["seq"].to_pylist()) == LEFT


def test_columns_without_the_sequence_are_read_past_it_too(tmp_path: Path) -> None:
    rows, _ = read_columns(hiding(tmp_path, list(range(1, 41))), ("subject",))
    assert (rows.column_names, rows.num_rows) == (["subject"], len(LEFT))


def test_a_description_is_of_what_is_left(tmp_path: Path) -> None:
    stats = describe(hiding(tmp_path, list(range(1, 41)))).stats
    assert (stats["messages"], stats["min_seq"], stats["max_seq"]) == (len(LEFT), 1, 37)


SEQS = st.sets(st.integers(0, 30))


def as_ranges(seqs: set[int]) -> np.ndarray:
    return np.array([[seq, seq] for seq in sorted(seqs)], np.int64).reshape(-1, 2)


@law
@given(first=SEQS, second=SEQS, some=st.integers(0, 35))
def test_joined_ranges_hold_what_both_hold_and_do_not_touch(
    first: set[int], second: set[int], some: int
) -> None:
    ranges = union_of_ranges(
        union_of_ranges(as_ranges(first), as_ranges(set())), as_ranges(second - first)
    )
    assert np.flatnonzero(in_ranges(np.arange(40), ranges)).tolist() == sorted(first | second)
    part = range(some, some + 5)
    assert in_ranges(np.array(part), ranges).tolist() == [seq in first | second for seq in part]
    if first and second - first:
        assert (ranges[1:, 0] > ranges[:-1, 1] + 1).all()


@law
@given(
    first=st.integers(0, 5),
    gaps=st.lists(st.integers(1, 2), max_size=6),
    wanted=st.lists(st.one_of(st.integers(0, 20), st.just(2**63 - 1))),
    side=st.sampled_from(("left", "right")),
)
def test_places_are_found_alike_with_and_without_gaps(
    first: int, gaps: list[int], wanted: list[int], side: Literal["left", "right"]
) -> None:
    seqs, asked = first + np.cumsum(np.array(gaps, np.int64)), np.array(wanted, np.int64)
    assert places_of(seqs, asked, side).tolist() == np.searchsorted(seqs, asked, side).tolist()
    without = np.arange(first, first + len(gaps))
    assert (
        places_of(without, asked, side).tolist() == np.searchsorted(without, asked, side).tolist()
    )
