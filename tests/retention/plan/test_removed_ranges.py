"""Stored ranges equal ranges in memory: by file, in pieces, and renumbered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention.core.read_count import ReadCount
from retention.core.seq_ranges import ranges_in
from retention.errors import StalePlanError
from retention.plan.removed_ranges import RemovedRanges, ranges_of, settled_counts, store_ranges
from retention.rules.row_verdicts import STAYS, Answer, provisional
from retention.schemas.plan import REMOVED_RANGES

FILES_OF_SPAN = 3
SPANS = 4
VERDICTS = [2, 4, 7, provisional(5, STAYS), provisional(5, 6)]


@st.composite
def answers(draw: st.DrawFn) -> list[Answer]:
    """Answers of some spans of three files each, with ranges of one or two messages."""
    made = []
    for span in sorted(draw(st.sets(st.integers(0, SPANS - 1)))):
        rows: list[dict[str, int]] = []
        for file in range(span * FILES_OF_SPAN, (span + 1) * FILES_OF_SPAN):
            seq = 100 * file
            for verdict in draw(st.lists(st.sampled_from(VERDICTS), max_size=4)):
                last = seq + draw(st.integers(0, 1))
                numbers = (file, verdict, seq, last, last - seq + 1, 10 * (last - seq + 1))
                rows.append(dict(zip(REMOVED_RANGES.names, numbers, strict=True)))
                seq = last + draw(st.integers(1, 3))
        table = pa.Table.from_pylist(rows, schema=REMOVED_RANGES)
        made.append(Answer(span, table, None, ReadCount()))
    return made


@settings(max_examples=60, deadline=None)
@given(answers(), st.data())
def test_stored_ranges_are_those_that_are_held(
    tmp_path_factory: pytest.TempPathFactory, given_answers: list[Answer], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("ranges")
    apart = [
        apart_from(answer, folder / f"{answer.span}.arrow") if data.draw(st.booleans()) else answer
        for answer in given_answers
    ]
    stopped_at = data.draw(st.none() | st.integers(0, SPANS))
    held, stored = (ranges_of(some, stopped_at) for some in (given_answers, apart))
    table = pa.table(
        {"file": [1, 7], "rule": [0, 0], "first_seq": [150, 750], "last_seq": [150, 751]}
        | {"messages": [1, 2], "bytes": [10, 20]}
    ).cast(REMOVED_RANGES)
    released = RemovedRanges(table)
    goes = data.draw(st.lists(st.booleans(), min_size=12, max_size=12))
    numbers = np.where(goes, np.cumsum(goes) - 1, -1)
    for one, other in (
        (held, stored),
        (held.joined(released), stored.joined(released)),
        (
            held.joined(released).renumbered(numbers),
            stored.joined(released).renumbered(numbers),
        ),
    ):
        assert one.table.equals(other.table)
        files = [set(table["file"].to_pylist()) for table in other.tables()]
        assert sum(map(len, files)) == len(set().union(*files))
        for file in range(FILES_OF_SPAN * SPANS):
            assert one.of_file(file).equals(other.of_file(file))
        numbered = np.arange(FILES_OF_SPAN * SPANS)
        for mine, theirs in zip(one.of_files(numbered), other.of_files(numbered), strict=True):
            assert union(ranges_in(mine)) == union(ranges_in(theirs))
    for answer, moved in zip(given_answers, apart, strict=True):
        sums = [settled_counts(some, stopped_at) for some in (answer, moved)]
        assert sorted(totals(sums[0])) == sorted(totals(sums[1]))


def apart_from(answer: Answer, location: Path) -> Answer:
    stored = store_ranges(answer.removed, str(location))
    return replace(answer, removed=REMOVED_RANGES.empty_table(), stored=stored)


def union(ranges: np.ndarray) -> set[int]:
    return {seq for first, last in ranges.tolist() for seq in range(first, last + 1)}


def totals(counts: pa.Table) -> list[tuple[int, int, int, int]]:
    summed = counts.group_by(["file", "rule"]).aggregate([("messages", "sum"), ("bytes", "sum")])
    return [tuple(row.values()) for row in summed.to_pylist()]


def test_the_highest_sequence_is_known_without_reading(tmp_path: Path) -> None:
    assert RemovedRanges().last_seq() is None
    table = pa.table(
        {
            "file": [3],
            "rule": [2],
            "first_seq": [5],
            "last_seq": [9],
            "messages": [5],
            "bytes": [50],
        }
    ).cast(REMOVED_RANGES)
    location = tmp_path / "ranges.arrow"
    stored = apart_from(Answer(1, table, None, ReadCount()), location)
    location.unlink()
    ranges = ranges_of([stored], None)
    assert ranges.last_seq() == 9
    with pytest.raises(StalePlanError, match="are deleted; nothing was changed; plan again"):
        ranges_in(ranges.of_files(np.array([3]))[0])
