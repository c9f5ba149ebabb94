"""Deletion vectors: written as others read them, read from each kind of place, and refused if damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from retention.delta import snapshot
from retention.delta.commit import Operation, commit
from retention.delta.entries import remove_of, with_vector
from retention.delta.vectors import (
    INLINE_BYTES,
    choose,
    decode_z85,
    encode_z85,
    inline,
    needs_rewrite,
    read_vector,
    unite,
    vector_location,
    write_vectors,
)
from retention.errors import DamagedError

SCATTERED = BitMap64(range(0, 20_000, 7))


@given(st.binary(max_size=400))
def test_z85_is_its_own_inverse(content: bytes) -> None:
    padded = content + bytes(-len(content) % 4)
    assert decode_z85(encode_z85(content)) == padded


@pytest.mark.parametrize("text", ["abcd", "ab cd", "abcdé", "#####"])
def test_text_that_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Z85|ascii"):
        decode_z85(text)


@given(st.sets(st.integers(0, 2**40), max_size=60))
def test_a_vector_in_the_log_returns_its_rows(rows: set[int]) -> None:
    assert set(read_vector("/none", inline(BitMap64(rows)))) == rows


def test_a_range_of_rows_takes_few_bytes() -> None:
    by_turns = BitMap64(range(0, 60_000, 2)) | BitMap64(range(1, 60_000, 2))
    assert inline(by_turns)["sizeInBytes"] <= 60


def test_one_file_has_many_vectors(tmp_path: Path) -> None:
    bitmaps = [BitMap64([0]), SCATTERED, BitMap64([2**33, 5])]
    vectors = write_vectors(str(tmp_path), bitmaps)
    assert len(list(tmp_path.iterdir())) == 1
    assert [read_vector(str(tmp_path), vector) for vector in vectors] == bitmaps
    assert [vector["cardinality"] for vector in vectors] == [1, len(SCATTERED), 2]


def test_a_file_in_a_folder_or_at_an_absolute_path_is_read(tmp_path: Path) -> None:
    (vector,) = write_vectors(str(tmp_path / "a b"), [SCATTERED])
    below = {**vector, "pathOrInlineDv": "a b" + vector["pathOrInlineDv"]}
    assert read_vector(str(tmp_path), below) == SCATTERED
    location = vector_location(str(tmp_path), below)
    for name in (f"file://{location}", f"file:{location}", str(location)):
        absolute = {**vector, "storageType": "p", "pathOrInlineDv": name.replace(" ", "%20")}
        assert read_vector("/elsewhere", absolute) == SCATTERED


def test_long_vectors_alone_are_written_to_a_file(tmp_path: Path) -> None:
    short, long = BitMap64([1, 2]), SCATTERED
    assert [one["storageType"] for one in choose(str(tmp_path), [short, short])] == ["i", "i"]
    assert list(tmp_path.iterdir()) == []
    chosen = choose(str(tmp_path), [long, short, long])
    assert [one["storageType"] for one in chosen] == ["u", "i", "u"]
    assert [read_vector(str(tmp_path), one) for one in chosen] == [long, short, long]
    assert chosen[0]["sizeInBytes"] > INLINE_BYTES


def test_a_union_has_the_rows_of_the_earlier_vector() -> None:
    add = {"path": "a", "deletionVector": inline(BitMap64([1, 2]))}
    assert set(unite("/none", add, BitMap64([2, 9]))) == {1, 2, 9}
    assert set(unite("/none", {"path": "a"}, BitMap64([9]))) == {9}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cardinality": 3}, "has 2858 rows, not 3"),
        ({"sizeInBytes": 12}, "no vector of 12 bytes at offset 1"),
        ({"offset": 10**6}, "no vector"),
        ({"storageType": "x"}, "its storage type is 'x'"),
        ({"pathOrInlineDv": "0" * 20}, "it is missing"),
        ({"pathOrInlineDv": "short"}, "16"),
    ],
)
def test_a_contradicting_descriptor_is_refused(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    (vector,) = write_vectors(str(tmp_path), [SCATTERED])
    with pytest.raises(DamagedError, match=why):
        read_vector(str(tmp_path), vector | change)


def test_a_changed_or_cut_file_is_refused(tmp_path: Path) -> None:
    (vector,) = write_vectors(str(tmp_path), [SCATTERED])
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for at in (4, 5, 20, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(DamagedError, match="deletion vector"):
            read_vector(str(tmp_path), vector)
        file.write_bytes(content[:at])
        with pytest.raises(DamagedError, match="no vector of"):
            read_vector(str(tmp_path), vector)


def test_another_format_is_refused() -> None:
    content = b"\x50\xd3\x39\x64" + BitMap64([1]).serialize()
    vector = {**inline(BitMap64([1])), "pathOrInlineDv": encode_z85(content)}
    with pytest.raises(DamagedError, match="portable format"):
        read_vector("/none", vector)


@pytest.mark.parametrize(
    ("path", "rewrites"),
    [
        ("part-00000-1.c000.snappy.parquet", False),
        ("day=2026-02-03/n=__HIVE_DEFAULT_PARTITION__/p.parquet", False),
        ("ts=2026-02-03%2004%253A05%253A06/p.parquet", True),
        ("p=é/p.parquet", True),
        ("p=a b/p.parquet", True),
    ],
)
def test_a_path_with_an_escape_gets_no_vector(path: str, *, rewrites: bool) -> None:
    assert needs_rewrite(path) is rewrites


@pytest.mark.parametrize("value", ["plain", "2026-02-03", "a b", "a%b", "a=b", "é"])
def test_polars_overlooks_vectors_of_exactly_these_paths(tmp_path: Path, value: str) -> None:
    rows = pa.table({"id": range(10), "p": [value] * 10})
    properties = {"delta.enableDeletionVectors": "true"}
    write_deltalake(tmp_path, rows, partition_by=["p"], configuration=properties)
    before = snapshot.read(str(tmp_path))
    add = before.add_of(0)
    actions = [remove_of(add, 0), with_vector(add, inline(BitMap64([1, 2])), 0)]
    commit(before, lambda *_: actions, Operation("DELETE", "test"), lambda: 0)
    overlooked = pl.scan_delta(str(tmp_path)).collect().height == len(rows)
    assert overlooked is needs_rewrite(add["path"])
