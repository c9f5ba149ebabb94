"""The signs in the name of a data file: those of one name are those that Arrow finds in many."""

from __future__ import annotations

import pyarrow as pa

from retention.stores.file_paths import is_merged, kin_of, merged_mask, new_path, siblings_of

KIN, VECTOR = "0123456789abcdef" * 2, ".dv-1-" + "fedcba9876543210" * 2
WRITTEN = [
    new_path(0, 7, kin, merged=merged) + vector
    for kin in (None, KIN)
    for merged in (False, True)
    for vector in ("", VECTOR)
]
OTHERS = ["partition=0/segment=7/part-00000.parquet", f"{WRITTEN[0]}.crc", f"{KIN}-{KIN}.parquet"]


def test_the_signs_of_one_name_are_those_of_many() -> None:
    paths = pa.array([*WRITTEN, *OTHERS])
    assert [kin_of(path) for path in paths.to_pylist()] == siblings_of(paths).to_pylist()
    assert [is_merged(path) for path in paths.to_pylist()] == merged_mask(paths).to_pylist()
    assert [kin_of(path) for path in WRITTEN] == [None] * 4 + [KIN] * 4
    assert [is_merged(path) for path in WRITTEN] == [False, False, True, True] * 2
