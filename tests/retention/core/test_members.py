"""Small and large sets give the same mask, whatever the type of the column."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retention.core.members import Members
from tests.support.laws import law

TEXTS = st.lists(st.text("ab", max_size=3), max_size=12)


@law
@given(TEXTS, st.lists(st.none() | st.text("ab", max_size=3), max_size=12), st.booleans())
def test_the_mask_is_membership(values: list[str], column: list[str | None], large: bool) -> None:
    members = Members(pa.array(values, pa.string()))
    asked = pa.array(column, pa.large_string() if large else pa.string())
    assert members.mask(asked).to_pylist() == [value in values for value in column]
