from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.integer_sort import argsort, distinct_in_order, fits_with_places, lexsort
from tests.support.laws import law

LARGEST = 2**63 - 1
KEYS = st.sampled_from([0, 1, 7, 2**20, 2**40, 2**61, LARGEST]).flatmap(
    lambda most: st.lists(st.integers(-most - 1, most), min_size=5, max_size=5)
)


@law
@given(st.lists(KEYS, min_size=1, max_size=4))
def test_numbers_sort_as_by_numpy(keys: list[list[int]]) -> None:
    columns = [np.array(key, np.int64) for key in keys]
    assert lexsort(columns, 5).tolist() == np.lexsort(columns).tolist()
    assert argsort(columns[0]).tolist() == np.argsort(columns[0], kind="stable").tolist()
    assert distinct_in_order(columns[0]).tolist() == sorted(set(keys[0]))


@pytest.mark.parametrize("most", [999, 2**50, LARGEST], ids=["short", "long", "longest"])
@pytest.mark.parametrize("runs", [1, 3, 4_000])
def test_many_numbers_sort_as_by_numpy(runs: int, most: int) -> None:
    random = np.random.default_rng(runs)
    parts = np.array_split(random.integers(-most - 1, most, 10_000), runs)
    values = np.concatenate([np.sort(part) for part in parts])
    values[::7] = values[0]
    assert np.array_equal(argsort(values), np.argsort(values, kind="stable"))
    keys = values, random.integers(0, 2, 10_000), values[::-1] >> 40
    assert np.array_equal(lexsort(keys, 10_000), np.lexsort(keys))


@pytest.mark.parametrize("near", [2**10, 2**30], ids=["in no order", "nearly in order"])
def test_numbers_that_leading_bits_leave_in_another_order_sort_as_by_numpy(near: int) -> None:
    values = np.random.default_rng(near).integers(0, near, 10_000)
    values[5_000] = 2**62
    assert np.array_equal(argsort(values), np.argsort(values, kind="stable"))
    keys = values[::-1] % 3, values
    assert np.array_equal(lexsort(keys, 10_000), np.lexsort(keys))


def test_numbers_of_few_bits_do_not_overflow() -> None:
    narrow = np.array([127, -128, 0], np.int8)
    assert argsort(narrow).tolist() == [1, 2, 0]
    assert fits_with_places(narrow)
    assert not fits_with_places(np.array([-LARGEST, LARGEST]))
    assert not len(lexsort([np.array([], np.int64)], 0))
