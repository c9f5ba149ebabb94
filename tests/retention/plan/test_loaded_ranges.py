"""Few ranges of a saved plan are held in memory; of many, only a part at a time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention.core.seq_ranges import ranges_in
from retention.plan import loaded_ranges as module
from retention.plan import removed_ranges
from retention.plan.loaded_ranges import loaded_ranges
from retention.plan.removed_ranges import RemovedRanges
from retention.schemas.plan import REMOVED_RANGES

MOST_IN_MEMORY, OF_PART = 6, 4


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IN_MEMORY", MOST_IN_MEMORY)
    monkeypatch.setattr(module, "_OF_PART", OF_PART)


def table_of(counts: list[int]) -> pa.Table:
    """Ranges of files, with a number of ranges for each."""
    file = np.repeat(np.arange(len(counts)), counts)
    seq = 10 * np.arange(len(file))
    columns = [file, file % 3, seq, seq + 1, np.full(len(file), 2), file + 1]
    return pa.table(dict(zip(REMOVED_RANGES.names, columns, strict=True))).cast(REMOVED_RANGES)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(0, 30), max_size=6))
def test_however_tables_are_cut_the_ranges_are_the_same(counts: list[int], cuts: list[int]) -> None:
    table = table_of(counts)
    edges = sorted({0, table.num_rows} | {cut for cut in cuts if cut < table.num_rows})
    pieces = [table.slice(a, b - a) for a, b in pairwise(edges)]
    loaded, held = loaded_ranges(pieces), RemovedRanges(table)
    assert bool(loaded.parts) is (table.num_rows > MOST_IN_MEMORY)
    assert loaded.in_memory.num_rows == (0 if loaded.parts else table.num_rows)
    assert loaded.table == held.table
    numbers = np.arange(len(counts))
    assert loaded.files.tolist() == held.files.tolist()
    for some, other in zip(loaded.of_files(numbers), held.of_files(numbers), strict=True):
        assert ranges_in(some).tolist() == ranges_in(other).tolist()
    # Parts share no file, so that a reader never needs two parts for one file.
    assert sum(len(part.files) for part in loaded.parts) == (len(held.files) if loaded.parts else 0)


def test_tables_are_let_go_as_they_come() -> None:
    alive: set[int] = set()
    most = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal most
        for number in range(30):
            table = table_of([0] * number + [OF_PART])
            alive.add(number)
            weakref.finalize(table, alive.discard, number)
            most = max(most, len(alive))
            yield table
            del table

    assert len(loaded_ranges(tables()).files) == 30
    assert most <= 4


def test_what_waits_in_files_ends_with_the_ranges() -> None:
    loaded = loaded_ranges([table_of([5, 5])])
    some = loaded.renumbered(np.array([-1, 0]))
    places = [Path(part.stored.place) for part in loaded.parts]
    del loaded
    gc.collect()
    assert some.table["first_seq"].to_pylist() == [50, 60, 70, 80, 90]
    assert places[-1].exists()
    del some
    gc.collect()
    assert not any(place.parent.exists() for place in places)


def test_ranges_are_worked_on_some_files_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_ranges, "AT_A_TIME", 4)
    table = table_of([1, 3, 2, 9, 1, 4])
    pieces = list(RemovedRanges(table).tables())
    assert [piece.num_rows for piece in pieces] == [4, 2, 9, 1, 4]
    assert pa.concat_tables(pieces) == table
