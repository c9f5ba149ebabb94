from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.core.subject_buckets import bucket_of


def test_a_subject_has_one_bucket_wherever_it_stands() -> None:
    names = ["", "a", "b", "aa", "é", "x" * 300, *(f"orders.{number}" for number in range(50_000))]
    one = bucket_of(pa.chunked_array([names]), 16)
    back = bucket_of(pa.chunked_array([names[::-1][:777], names[::-1][777:]]), 16)
    assert np.array_equal(one, back[::-1])
    assert np.bincount(one.astype(int)).min() > 2_500
