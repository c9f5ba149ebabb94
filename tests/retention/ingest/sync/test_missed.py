from __future__ import annotations

import numpy as np
import pytest

from retention.core.seq_ranges import gaps_in
from retention.ingest.sync.missed import (
    NONE_MISSED,
    KnownGaps,
    Missed,
    MissedRange,
    missed_in,
)


@pytest.mark.parametrize(
    ("seqs", "first", "until", "deleted", "expected"),
    [
        ([5, 6, 7], 5, 7, [], []),
        ([5, 6, 7], 3, 7, [], [(3, 4, 2)]),
        ([5, 7], 5, 7, [], [(6, 6, 1)]),
        ([5, 7], 5, 5, [], []),
        ([5, 9], 5, 9, [6, 7], [(6, 8, 1)]),
        ([5, 9], 5, 9, [6, 7, 8], []),
        ([], 11, 15, [], [(11, 15, 5)]),
        ([], 11, 10, [], []),
        ([], 16, 10, [], []),
        ([12, 14], 11, 20, [20], [(11, 11, 1), (13, 13, 1), (15, 20, 5)]),
        ([], 1, 10**15, [], [(1, 10**15, 10**15)]),
    ],
)
def test_missed_are_the_sequences_that_were_there_and_were_not_read(
    seqs: list[int],
    first: int,
    until: int,
    deleted: list[int],
    expected: list[tuple[int, int, int]],
) -> None:
    known = KnownGaps(np.array(deleted, np.int64))
    gaps = gaps_in(np.array(seqs, np.int64), first, max([*seqs, until]))
    missed = missed_in(gaps, until, known)
    assert [(each.first, each.last, each.count) for each in missed.ranges] == expected
    assert missed.count == sum(count for *_, count in expected)


def test_missed_ranges_are_said_in_a_few_words() -> None:
    ranges = [MissedRange(at, at + 1, 2) for at in range(1, 10, 2)]
    assert str(Missed(ranges[:1])) == "1 to 2 (2)"
    assert str(Missed(ranges)) == "1 to 2 (2), 3 to 4 (2), 5 to 6 (2), and 2 more ranges"
    assert (NONE_MISSED + Missed(ranges)).count == 10
