"""Rows of a table by their numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def rows_at(table: pa.Table, numbers: np.ndarray) -> pa.Table:
    """The rows of strictly ascending numbers; consecutive ones are a view, as the oldest files of a stream mostly are.

    >>> rows_at(pa.table({"seq": [7, 8, 9]}), np.array([1, 2]))["seq"].to_pylist()
    [8, 9]
    >>> rows_at(pa.table({"seq": [7, 8, 9]}), np.array([0, 2]))["seq"].to_pylist()
    [7, 9]
    """
    count = len(numbers)
    if not count:
        return table.slice(0, 0)
    if numbers[-1] - numbers[0] == count - 1:
        return table.slice(int(numbers[0]), count)
    return table.take(pa.array(numbers))
