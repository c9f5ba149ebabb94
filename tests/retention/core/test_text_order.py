from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retention.core import text_order

SHORT = st.text("\0aéz", max_size=10)
PREFIXES = ("", "orders.", "\0", "orders.of.a.customer.")
"""The last one is longer than the eight bytes that are compared at a time."""


@given(st.lists(SHORT), st.sampled_from(PREFIXES), st.integers(0, 2))
@example(["a", "a\0", "a", "", "a\0\0", "abcdefg", "abcdefgh", "abcdefgg", "abcdefgh"], "", 1)
def test_texts_are_in_the_order_of_their_bytes_and_then_of_their_places(
    texts: list[str], prefix: str, omitted: int
) -> None:
    texts = [prefix + text for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_order, "_MOST_TIED", 1)
        found = text_order.text_order(pa.array(texts, pa.string())[omitted:])
    assert found is not None
    order, repeats = found
    left = texts[omitted:]
    assert order.tolist() == sorted(range(len(left)), key=lambda at: left[at].encode())
    ordered = [left[at] for at in order]
    pairs = pairwise(ordered)
    assert repeats.tolist() == [False, *(one == other for one, other in pairs)][: len(left)]


@pytest.mark.parametrize(
    ("name", "is_quick"),
    [("orders.{}", True), ("{:032x}.orders", False), ("orders.{:09}.sent", False), ("{}", True)],
)
def test_texts_that_begin_alike_are_left_to_comparisons(name: str, is_quick: bool) -> None:
    drawn = np.random.default_rng(1).integers(0, 3_000, 2_000)
    texts = [name.format(number) for number in drawn.tolist()]
    assert (text_order.text_order(pa.array(texts)) is not None) == is_quick


def test_a_few_long_texts_that_begin_alike_are_compared() -> None:
    texts = [f"{number % 700:07}.{number}" for number in range(720)]
    found = text_order.text_order(pa.array(texts))
    assert found is not None
    assert found[0].tolist() == sorted(range(720), key=texts.__getitem__)
    assert not found[1].any()
