"""Column values: short and long columns give the same answers, by Python and by Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from retention.core import column_values
from retention.core.column_values import (
    equals_text,
    filled_numbers,
    highest,
    integers_of,
    known_numbers,
    plain_texts,
    rows_of,
    total,
)

pytestmark = pytest.mark.usefixtures("few")
NULLS = pa.chunked_array([[None, None], [None]], pa.int64())
SOME = pa.chunked_array([[None, 3], [2**60 + 1]], pa.int64())
NONE = pa.chunked_array([], pa.int64())


@pytest.fixture(params=[0, 64])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_values, "FEW", request.param)


def texts(*chunks: list[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array(chunks, pa.string())


def test_known_numbers_are_exact_and_without_nulls() -> None:
    assert known_numbers(SOME).tolist() == [3, 2**60 + 1]
    assert known_numbers(NULLS).tolist() == known_numbers(NONE).tolist() == []


def test_nulls_are_filled_without_a_change_of_other_numbers() -> None:
    assert filled_numbers(SOME, 7).tolist() == [7, 3, 2**60 + 1]
    assert filled_numbers(NULLS, -(2**63)).tolist() == [-(2**63)] * 3
    assert filled_numbers(NULLS, 7).dtype == np.int64


def test_a_column_without_numbers_has_the_total_0_and_no_highest_one() -> None:
    assert (total(SOME), highest(SOME)) == (2**60 + 4, 2**60 + 1)
    assert [(total(each), highest(each)) for each in (NULLS, NONE)] == [(0, None)] * 2


def test_a_dictionary_of_texts_is_read_as_its_texts() -> None:
    coded = pa.chunked_array([pa.array(["a", "b", "a"]).dictionary_encode()])
    assert plain_texts(coded) == texts(["a", "b", "a"])
    assert plain_texts(coded.slice(1)) == texts(["b", "a"])


def test_texts_of_digits_are_integers_and_null_stays_null() -> None:
    assert integers_of(texts(["7", None], ["007"]), pa.int64()).to_pylist() == [7, None, 7]
    assert integers_of(texts([str(2**62)]), pa.int64()).to_pylist() == [2**62]


@pytest.mark.parametrize("text", ["", "x", "1 ", "1.0", "٣", "9999999999", str(2**80)])
def test_a_text_that_is_no_integer_of_the_type_is_refused(text: str) -> None:
    with pytest.raises(pa.ArrowException):
        integers_of(texts(["7"], [text]), pa.int32())


def test_a_mask_of_equal_texts_has_every_row() -> None:
    assert equals_text(texts(["drop", "rewrite"], ["drop"]), "drop").tolist() == [True, False, True]


def test_the_row_of_a_text_is_the_first_one_that_equals_it() -> None:
    assert rows_of(texts(["c", "a"], ["x"]), texts(["a", "b"], ["a", "c"])).tolist() == [3, 0, -1]
    assert rows_of(texts(["a"]), texts()).tolist() == [-1]
