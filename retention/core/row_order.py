"""The order of rows by some of their columns: missing values first, text and bytes by their bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.integer_sort import lexsort
from retention.core.slices import slices_of
from retention.core.spans import Array

Key = tuple[Any, ...]
"""A row's values, each preceded by whether it is present. A key ends at the first text or bytes of
length `KEY_LENGTH` or more, truncated there. So keys never contradict the order of rows, and rows
with equal keys may be in either order."""
KEY_LENGTH = 64
KEY_BEFORE_ALL: Key = ()


def in_order(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows in the order of columns; the same table object if they are sorted already."""
    if is_in_order(rows, columns):
        return rows
    return rows.take(pa.array(sorted_places(rows, columns)))


def sorted_places(rows: pa.Table, columns: Sequence[str]) -> Array:
    """The places of rows in the order of columns: integers in the first columns are sorted as numbers."""
    leading = [*takewhile(partial(_is_numbers, rows), columns)]
    numbers = [values for values in (rows[name].to_numpy() for name in leading) if _varies(values)]
    if not numbers:
        return _places(rows, columns)
    places = lexsort(numbers[::-1], rows.num_rows)
    is_tied = _tied([values[places] for values in numbers])
    if len(leading) < len(columns) and is_tied.any():
        tied = places[is_tied]
        places[is_tied] = tied[_places(rows.select(columns).take(pa.array(tied)), columns)]
    return places


def ordered_slices(rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Rows in the order of columns, in slices, so that no second copy of the table is made."""
    if is_in_order(rows, columns):
        yield from slices_of(rows)
        return
    places = pa.table({"place": sorted_places(rows, columns)})
    # With several chunks, each slice would concatenate all of them first.
    rows = rows.combine_chunks()
    pa.default_memory_pool().release_unused()
    for part in slices_of(places, rows.nbytes // max(rows.num_rows, 1)):
        yield rows.take(part["place"])


def is_in_order(rows: pa.Table, columns: Sequence[str]) -> bool:
    """Whether rows are sorted by the columns."""
    equal = np.arange(rows.num_rows - 1)
    for name in columns:
        if not len(equal):
            return True
        before, behind = _neighbours(rows[name], equal)
        if _any(pc.and_(pc.is_valid(before), pc.is_null(behind))) or _any(pc.less(behind, before)):
            return False
        both_missing = pc.and_(pc.is_null(before), pc.is_null(behind))
        alike = pc.fill_null(pc.equal(before, behind), both_missing)
        equal = equal[alike.to_numpy()]
    return True


def key_at(rows: pa.Table, columns: Sequence[str], at: int) -> Key:
    """The key of one row."""
    key: list[object] = []
    for name in columns:
        value = rows[name][at].as_py()
        is_text = isinstance(value, str | bytes)
        key += (value is not None, value[:KEY_LENGTH] if is_text else value)
        if is_text and len(value) >= KEY_LENGTH:
            break
    return tuple(key)


def rows_before(rows: pa.Table, columns: Sequence[str], key: Key) -> int:
    """The number of rows with a lesser key, in sorted rows."""
    return bisect_left(range(rows.num_rows), key, key=partial(key_at, rows, columns))


def _places(rows: pa.Table, columns: Sequence[str]) -> Array:
    keys = [(name, "ascending", "at_start") for name in columns]
    return pc.sort_indices(rows, sort_keys=keys).to_numpy().astype(np.int64)


def _is_numbers(rows: pa.Table, name: str) -> bool:
    return bool(pa.types.is_integer(rows[name].type)) and not rows[name].null_count


def _varies(values: Array) -> bool:
    return bool((values != values[:1]).any())


def _tied(columns: Sequence[Array]) -> Array:
    """A mask of the rows that equal a neighbour in all columns."""
    equal = np.logical_and.reduce([values[1:] == values[:-1] for values in columns])
    return np.append(equal, False) | np.append(False, equal)


def _neighbours(
    values: pa.ChunkedArray, before: np.ndarray
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The values of some rows and of their successors; without a copy for all rows except the last."""
    if len(before) == len(values) - 1:
        return values.slice(0, len(before)), values.slice(1)
    return values.take(pa.array(before)), values.take(pa.array(before + 1))


def _any(mask: pa.ChunkedArray) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())
