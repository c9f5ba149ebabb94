"""Values of columns for NumPy: in a pass over a few files, the first call of an Arrow function takes ten later ones."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_IS_NATURAL = re.compile("[0-9]{1,18}").fullmatch
FEW = 64
"""The number of texts up to which Python looks at each."""


def known_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """The numbers of a column that are not null."""
    if column.null_count == len(column):
        return np.zeros(0, dtype=np.int64)
    return (column.drop_null() if column.null_count else column).to_numpy()


def filled_numbers(column: pa.ChunkedArray, absent: int) -> np.ndarray:
    """The numbers of a column, with `absent` in place of nulls."""
    if column.null_count == len(column):
        return np.full(len(column), absent)
    return (pc.fill_null(column, absent) if column.null_count else column).to_numpy()


def total(column: pa.ChunkedArray) -> int:
    """The sum of a column's numbers."""
    return int(known_numbers(column).sum())


def highest(column: pa.ChunkedArray) -> int | None:
    """The highest number of a column; None without any."""
    numbers = known_numbers(column)
    return int(numbers.max()) if len(numbers) else None


def plain_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts, or of a dictionary of texts, as texts."""
    if pa.types.is_string(column.type):
        return column
    if len(column) <= FEW:
        return pa.chunked_array([column.to_pylist()], pa.string())
    return column.cast(pa.string())


def integers_of(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Texts as integers of a type; null stays null.

    Raises:
        pyarrow.ArrowException: a text is no such integer.
    """
    few = texts.to_pylist() if len(texts) <= FEW else [""]
    if all(text is None or _IS_NATURAL(text) for text in few):
        return pa.chunked_array([[text and int(text) for text in few]], kind)
    return texts.cast(kind)


def equals_text(column: pa.ChunkedArray, text: str) -> np.ndarray:
    """A mask of the texts of a column that equal one."""
    if len(column) <= FEW:
        return np.array([each == text for each in column.to_pylist()], dtype=bool)
    return pc.equal(column, text).to_numpy()


def rows_of(texts: pa.ChunkedArray, among: pa.ChunkedArray) -> np.ndarray:
    """The first row of each text among others; -1: it is not there."""
    if max(len(texts), len(among)) <= FEW:
        at = {text: row for row, text in reversed(list(enumerate(among.to_pylist())))}
        return np.array([at.get(text, -1) for text in texts.to_pylist()], dtype=np.int64)
    return pc.index_in(texts, value_set=among.combine_chunks()).fill_null(-1).to_numpy()
