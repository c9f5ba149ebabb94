from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.core.hash_buckets import hash_buckets


def test_a_subject_has_one_bucket_wherever_it_stands() -> None:
    names = ["", "a", "b", "aa", "é", "x" * 300, *(f"orders.{number}" for number in range(50_000))]
    one = hash_buckets(pa.chunked_array([names]), 16)
    back = hash_buckets(pa.chunked_array([names[::-1][:777], names[::-1][777:]]), 16)
    assert np.array_equal(one, back[::-1])
    assert np.bincount(one.astype(int)).min() > 2_500
