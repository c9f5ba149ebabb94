from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.core.inventory import DataFile
from retention.core.plain_strings import without_views
from retention.core.seq_ranges import visible_rows

VIEWS = pa.table(
    {
        "seq": pa.array([1, 2, 3], pa.int64()),
        "subject": pa.array(["a", "b", "c"], pa.string_view()),
        "payload": pa.array([b"x", None, b"z"], pa.binary_view()),
    }
)
"""Rows as deltalake writes them from a frame of Polars."""


def test_rows_in_views_are_filtered() -> None:
    file = DataFile("p", 0, 1, "p", "S", hidden=np.array([[2, 2]]))
    rows = visible_rows(file, VIEWS)
    assert rows.to_pylist() == [VIEWS.to_pylist()[0], VIEWS.to_pylist()[2]]
    assert rows.schema.types == [pa.int64(), pa.string(), pa.binary()]


def test_other_rows_are_unchanged() -> None:
    plain = without_views(VIEWS)
    assert without_views(plain) is plain
