from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from retention.consumers import ack_gaps
from retention.consumers.ack_gaps import AckGaps, UnseenRuns, gaps_of, runs_up_to
from retention.consumers.state import OPEN, UNSEEN, DeliveryPosition, new_state
from retention.errors import RefusedError


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def runs(*rows: tuple[int, int, int, int]) -> UnseenRuns:
    return UnseenRuns(*(numbers(*column) for column in zip(*rows, strict=True)))


def listed(some: UnseenRuns) -> list[tuple[int, ...]]:
    return [tuple(row.values()) for row in some.table().to_pylist()]


def gaps(
    *rows: tuple[int, int, int, int], delivered: int = 100, matching: np.ndarray | None = None
) -> AckGaps:
    return gaps_of(runs(*rows), delivered, matching)


def test_deliveries_after_the_last_known_are_unseen_and_open_ended() -> None:
    state = replace(new_state(1), delivered=DeliveryPosition(4, 40))
    assert listed(runs_up_to(state, 9)) == [(5, 9, 40, OPEN)]
    assert listed(runs_up_to(state, 4)) == []


def test_an_open_run_goes_on_where_it_began() -> None:
    known = pa.table([[2], [3], [10], [OPEN]], schema=UNSEEN)
    state = replace(new_state(1), delivered=DeliveryPosition(4, 40), unseen=known)
    assert listed(runs_up_to(state, 9)) == [(2, 3, 10, OPEN), (5, 9, 10, OPEN)]


def test_a_redelivery_cuts_a_run_and_tells_nothing_of_the_stream() -> None:
    left = runs((5, 9, 40, OPEN)).split(numbers(7), numbers(), numbers())
    assert listed(left) == [(5, 6, 40, OPEN), (8, 9, 40, OPEN)]


def test_a_first_delivery_bounds_what_lies_on_its_sides() -> None:
    left = runs((5, 9, 40, OPEN)).split(numbers(5, 7), numbers(7), numbers(60))
    assert listed(left) == [(6, 6, 40, 60), (8, 9, 60, OPEN)]


def test_runs_are_cut_each_by_its_own_deliveries() -> None:
    two = runs((3, 9, 10, 20), (12, 13, 20, 30))
    left = two.split(numbers(1, 3, 5, 7, 9, 12, 50), numbers(5), numbers(14))
    assert listed(left) == [(4, 4, 10, 14), (6, 6, 14, 20), (8, 8, 14, 20), (13, 13, 20, 30)]


def test_a_first_delivery_must_lie_between_its_neighbours_in_both_counts() -> None:
    run = runs((5, 9, 40, 60))
    admitted = run.admit(numbers(4, 5, 9, 10, 7, 7), numbers(50, 41, 59, 50, 40, 60))
    assert admitted.tolist() == [False, True, True, False, False, False]


def test_gaps_hold_every_message_that_an_unseen_delivery_may_have_been() -> None:
    some = gaps((2, 3, 10, 14), (5, 5, 10, 14), (8, 8, 20, OPEN), (9, 9, 30, 31), delivered=22)
    assert some.seqs_above(0).tolist() == [11, 12, 13, 21, 22]
    assert some.seqs_above(12).tolist() == [13, 21, 22]
    assert some.cover(numbers(10, 11, 13, 14, 21, 23)).tolist() == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]


def test_where_it_is_known_what_matches_only_that_is_held() -> None:
    some = gaps((2, 3, 10, 14), (8, 8, 20, 30), matching=numbers(3, 10, 12, 14, 21, 25, 40))
    assert some.seqs_above(0).tolist() == [12, 21, 25]
    assert some.seqs_above(12).tolist() == [21, 25]


def test_the_nth_message_of_a_gap_has_its_nth_delivery() -> None:
    some = gaps((2, 3, 10, 14), (5, 5, 10, 14), (8, 8, 20, OPEN), delivered=23)
    assert some.consumer_seqs(numbers(11, 12, 13, 21, 22)).tolist() == [2, 3, 5, 8, 8]
    assert some.consumer_seqs(numbers(12, 22)).tolist() == [2, 8]


def test_too_much_that_nobody_saw_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_gaps, "MOST_KEPT", 3)
    assert len(gaps((2, 3, 10, 14)).seqs_above(0)) == 3
    with pytest.raises(RefusedError, match=r"sequence 2 on, .* any of 4 messages, from 11 on"):
        gaps((2, 3, 10, 15)).seqs_above(0)
