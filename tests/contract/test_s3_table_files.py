"""Vectors and copies of data files on an object store: written whole, and read by ranges."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from retention.delta.change_data import write_change_data
from retention.delta.rewrite import rewrite
from retention.delta.vectors import read_vector, write_vectors
from retention.errors import DamagedError
from retention.storage import files

METADATA = {
    "schemaString": json.dumps(
        {
            "type": "struct",
            "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
        }
    ),
    "configuration": {},
}


def test_vectors_are_read_by_ranges_and_refused_if_cut(bucket: str) -> None:
    bitmaps = [BitMap64(range(0, 20_000, 7)), BitMap64([1]), BitMap64([2**40])]
    vectors = write_vectors(bucket, bitmaps)
    assert [read_vector(bucket, vector) for vector in vectors] == bitmaps
    with pytest.raises(DamagedError, match="no vector of"):
        read_vector(bucket, vectors[0] | {"offset": 10**6})
    files.delete(files.join(bucket, name) for name in files.names(bucket))
    with pytest.raises(DamagedError, match="it is missing"):
        read_vector(bucket, vectors[0])


def test_a_file_is_copied_without_its_dead_rows(bucket: str) -> None:
    with files.create(files.join(bucket, "p=a b", "a.parquet")) as sink:
        pq.write_table(pa.table({"id": range(1000)}), sink, row_group_size=100)
    add = {"path": "p=a%20b/a.parquet", "partitionValues": {"p": "a b"}}
    dead = BitMap64([*range(100, 200), 7])
    copy = rewrite(bucket, METADATA, add, dead)
    change = write_change_data(bucket, METADATA, add, dead)
    assert change is not None
    for action, expected in ((copy, {*range(1000)} - {*dead}), (change, {*dead})):
        location = files.join(bucket, action["path"].replace("%20", " "))
        with files.reading(location) as source:
            assert {*pq.read_table(source)["id"].to_pylist()} == expected
        assert action["size"] == files.length(location)
