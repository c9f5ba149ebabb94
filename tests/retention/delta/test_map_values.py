from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.delta.map_values import map_values
from retention.delta.shapes import TEXTS

KEYS = st.sampled_from(["partition", "segment", "other"])
MAPS = st.none() | st.lists(st.tuples(KEYS, st.none() | st.text(max_size=2)), max_size=3)
MANY = 300
"""More maps than are looked into one by one."""


def looked_up(maps: pa.ChunkedArray, key: str) -> pa.ChunkedArray:
    return pc.map_lookup(maps, key, "first")


@given(st.lists(MAPS, min_size=1, max_size=3), st.integers(0, 2), KEYS)
def test_values_of_a_key_are_those_of_a_lookup(maps: list[object], cut: int, key: str) -> None:
    column = pa.chunked_array([pa.array(maps * MANY, TEXTS).slice(cut), pa.array(maps, TEXTS)])
    assert map_values(column, key).equals(looked_up(column, key))


@pytest.mark.parametrize("key", ["partition", "segment", "other"])
def test_values_of_equal_maps_are_those_of_a_lookup(key: str) -> None:
    maps = [[("partition", "0"), ("segment", str(number))] for number in range(MANY)]
    for several in (maps, [*maps[:-1], maps[0][::-1]], [*maps[:-1], [("segment", "1")] * 2]):
        column = pa.chunked_array([pa.array(several, TEXTS).slice(1)])
        assert map_values(column, key).equals(looked_up(column, key))
