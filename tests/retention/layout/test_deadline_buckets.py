"""Division of messages into files by lifetime: few files, and never more than the maximum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.layout.deadline_buckets import (
    CLASS_NEVER,
    CLASS_WITHOUT_TTL,
    SMALL_BYTES,
    bucket_ends,
    buckets_of,
    lifetime_classes,
)
from retention.schemas.deadlines import NEVER
from tests.support.laws import law

SECOND = 1_000_000_000
DAY = 86_400
NOW = 1_700_000_000 * SECOND
lives = st.none() | st.just(NEVER) | st.integers(0, 400 * DAY)


def rows_of(given_lives: Sequence[int | None]) -> pa.Table:
    """One message per second, each with its lifetime in seconds; `NEVER` is a deadline, not a lifetime."""
    times = [NOW + number * SECOND for number in range(len(given_lives))]
    deadlines = [
        life if life in (None, NEVER) else time + life * SECOND
        for time, life in zip(times, given_lives, strict=True)
    ]
    columns = [pa.array(times, pa.int64()), pa.array(deadlines, pa.int64())]
    return pa.table(columns, names=["ts_ns", "deadline_ns"])


def divided(given_lives: Sequence[int | None], size: int, most: int = 16) -> list[int]:
    rows = rows_of(given_lives)
    sizes = np.full(len(given_lives), size)
    return buckets_of(rows, bucket_ends(lifetime_classes(rows), sizes, most)).tolist()


@law
@given(st.lists(lives, min_size=1, max_size=60), st.integers(1, SMALL_BYTES), st.integers(1, 16))
def test_longer_lives_never_lie_in_an_earlier_file_and_files_are_few(
    given_lives: list[int | None], size: int, most: int
) -> None:
    number = divided(given_lives, size, most)
    ranked = [NEVER - 1 if life is None else life for life in given_lives]
    in_order = [one for _, one in sorted(zip(ranked, number, strict=True))]
    assert in_order == sorted(in_order)
    assert set(number) == set(range(max(number) + 1))
    assert len(set(number)) <= most
    if len(set(given_lives)) * len(given_lives) * size < SMALL_BYTES:
        assert set(number) == {0}


@law
@given(st.integers(1, 400 * DAY), st.integers(0, 400 * DAY))
def test_lives_of_one_class_differ_by_an_eighth_at_most(one: int, more: int) -> None:
    classes = lifetime_classes(rows_of([one, one + more]))
    assert classes[0] <= classes[1]
    if classes[0] == classes[1]:
        assert more <= max(one // 8, 0)


def test_no_deadline_and_never_are_classes_of_their_own() -> None:
    found = lifetime_classes(rows_of([None, NEVER, 400 * DAY])).tolist()
    assert found[:2] == [CLASS_WITHOUT_TTL, CLASS_NEVER]
    assert found[2] < CLASS_WITHOUT_TTL


def test_deadlines_that_are_past_or_wrapped_are_the_shortest() -> None:
    rows = pa.table(
        {
            "ts_ns": pa.array([NOW] * 4, pa.int64()),
            "deadline_ns": pa.array([NOW, NOW - SECOND, -(2**63), NEVER - 1], pa.int64()),
        }
    )
    *past, far = lifetime_classes(rows).tolist()
    assert past == [0, 0, 0]
    assert 0 < far < CLASS_WITHOUT_TTL


def test_each_of_a_few_lives_has_its_file_if_there_is_enough_of_it() -> None:
    mixed = [60, 3_600, DAY, 30 * DAY, None, NEVER] * 10
    number = divided(mixed, SMALL_BYTES)
    assert number == [0, 1, 2, 3, 4, 5] * 10


def test_a_small_batch_stays_one_file() -> None:
    assert set(divided([60, 3_600, DAY, None] * 5, 100)) == {0}


def test_a_few_that_live_shorter_spare_the_many_behind_them() -> None:
    few_first = divided([60] + [DAY] * 99, SMALL_BYTES // 50)
    assert few_first == [0] + [1] * 99
    few_last = divided([60] * 99 + [DAY], SMALL_BYTES // 50)
    assert few_last == [0] * 100


@pytest.mark.parametrize("most", [1, 2, 5])
def test_what_would_cost_least_to_write_again_is_merged(most: int) -> None:
    mixed = [60] * 50 + [3_600] * 20 + [DAY] * 10 + [30 * DAY] * 5 + [None] * 40
    number = divided(mixed, SMALL_BYTES, most)
    ends = {1: [0] * 5, 2: [0, 0, 0, 0, 1], 5: [0, 1, 2, 3, 4]}[most]
    assert [number[at] for at in (0, 50, 70, 80, 85)] == ends
