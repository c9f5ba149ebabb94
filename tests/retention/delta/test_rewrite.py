"""Copies of data files: the remaining rows in the file's own types, and statistics that hold for them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from retention.delta.change_data import write_change_data
from retention.delta.copy_stats import CopyStats
from retention.delta.row_ids import with_row_ids
from retention.delta.schema import Leaf, leaves
from retention.delta.vectors import inline, write_vectors
from retention.errors import DamagedError, VerificationError
from tests.support.delta_tables import rewritten

INSTANTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_777, tzinfo=UTC),
    datetime(2025, 10, 9, 8, 53, 23, 777, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]


def field(name: str, kind: Any, number: int = 0, physical: str = "") -> dict[str, Any]:
    mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {
        "name": name,
        "type": kind,
        "nullable": True,
        "metadata": mapped if physical else {},
    }


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def metadata(*fields: dict[str, Any], **properties: str) -> dict[str, Any]:
    configuration = {name.replace("_", "."): value for name, value in properties.items()}
    return {"schemaString": json.dumps(struct(*fields)), "configuration": configuration}


def laid(root: Path, rows: pa.Table, stats: Any = None, **options: Any) -> dict[str, Any]:
    """Write rows as a data file; returns its `add` action."""
    pq.write_table(rows, root / "a.parquet", **options)
    add = {"path": "a.parquet", "partitionValues": {}, "size": 1, "dataChange": True}
    return add if stats is None else add | {"stats": json.dumps(stats)}


def copied(root: Path, copy: dict[str, Any]) -> pa.Table:
    return pq.read_table(root / copy["path"])


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


IDS = metadata(field("id", "long"))


def test_dead_rows_and_those_of_the_vector_are_left_out(tmp_path: Path) -> None:
    add = laid(tmp_path, ids(*range(1000)), row_group_size=100, compression="gzip")
    add["deletionVector"] = inline(BitMap64([0, 999]))
    dead = BitMap64([5, *range(100, 200), 350])
    copy = rewritten(str(tmp_path), IDS, add, dead)
    hidden = dead | BitMap64([0, 999])
    assert copied(tmp_path, copy)["id"].to_pylist() == [n for n in range(1000) if n not in hidden]
    footer = pq.ParquetFile(tmp_path / copy["path"]).metadata
    assert {footer.row_group(n).num_rows for n in range(footer.num_row_groups - 1)} == {100}
    assert footer.row_group(0).column(0).compression == "GZIP"
    assert json.loads(copy["stats"]) == {"numRecords": 896, "tightBounds": True}
    assert copy["size"] == (tmp_path / copy["path"]).stat().st_size


def test_a_copy_has_dictionaries_where_the_file_is_smaller_by_them(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": range(10_000),
            "name": [f"a long name {number % 50}" for number in range(10_000)],
            "text": [f"{number}" for number in range(10_000)],
            "all": [{"part": number} for number in range(10_000)],
            "plain": [7] * 10_000,
        }
    )
    fields = [
        field(name, "string" if name in ("name", "text") else "long") for name in rows.schema.names
    ]
    fields[3]["type"] = struct(field("part", "long"))
    add = laid(tmp_path, rows, use_dictionary=["id", "name", "text", "all.part"])
    copy = rewritten(str(tmp_path), metadata(*fields), add, BitMap64([3]))
    group = pq.read_metadata(tmp_path / copy["path"]).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    assert {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page} == {
        "name",
        "all.part",
    }


def test_the_copy_is_in_the_partition_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "p=a%20b").mkdir()
    add = laid(tmp_path / "p=a%20b", ids(1, 2))
    add |= {"path": "p=a%2520b/a.parquet", "partitionValues": {"p": "a b"}, "tags": {"t": "1"}}
    copy = rewritten(str(tmp_path), IDS, add | {"clusteringProvider": "liquid"}, BitMap64([0]))
    assert copy["path"].startswith("p=a%2520b/part-00000-")
    assert (copy["partitionValues"], copy["tags"]) == ({"p": "a b"}, {"t": "1"})
    assert copy["clusteringProvider"] == "liquid"
    assert len(list((tmp_path / "p=a%20b").iterdir())) == 2


def test_int96_becomes_microseconds_with_a_zone_by_the_schema(tmp_path: Path) -> None:
    local = [instant.replace(tzinfo=None) for instant in INSTANTS]
    naive = pa.array(local, pa.timestamp("us"))
    kind = pa.struct({"t": pa.list_(naive.type), "m": pa.map_(pa.string(), naive.type)})
    nested = pa.array([{"t": [instant], "m": [("k", instant)]} for instant in local], kind)
    rows = pa.table({"ts": naive, "ntz": naive, "n": nested})
    add = laid(tmp_path, rows, use_deprecated_int96_timestamps=True, store_schema=False)
    times = {"type": "array", "elementType": "timestamp"}
    mapped = {"type": "map", "keyType": "string", "valueType": "timestamp_ntz"}
    inner = struct(field("t", times), field("m", mapped))
    table = metadata(field("ts", "timestamp"), field("ntz", "timestamp_ntz"), field("n", inner))
    copy = rewritten(str(tmp_path), table, add, BitMap64([1]))
    result = copied(tmp_path, copy)
    kept = [0, 2, 3]
    assert result["ts"].to_pylist() == [INSTANTS[at] for at in kept]
    assert result["ntz"].to_pylist() == [local[at] for at in kept]
    assert result["n"].to_pylist() == [
        {"t": [INSTANTS[at]], "m": [("k", local[at])]} for at in kept
    ]
    footer = pq.ParquetFile(tmp_path / copy["path"]).schema
    assert {footer.column(at).physical_type for at in (0, 1, 2)} == {"INT64"}


def test_types_field_ids_and_notes_of_the_file_are_kept(tmp_path: Path) -> None:
    numbered = {b"PARQUET:field_id": b"7"}
    inner = pa.field("x", pa.int16(), nullable=False, metadata={b"PARQUET:field_id": b"8"})
    schema = pa.schema(
        [
            pa.field("col-1", pa.int8(), nullable=False, metadata=numbered),
            pa.field("col-2", pa.struct([inner])),
            pa.field("col-3", pa.dictionary(pa.int32(), pa.large_string())),
        ],
        {b"org.apache.spark.version": b"4.2.0"},
    )
    rows = pa.table([[1, 2], [{"x": 1}, {"x": 2}], ["a", "b"]], schema=schema)
    add = laid(tmp_path, rows)
    table = metadata(
        field("id", "long", 7, "col-1"),
        field("s", struct(field("x", "short", 8, "x")), 9, "col-2"),
        field("k", "string", 10, "col-3"),
    )
    copy = pq.ParquetFile(tmp_path / rewritten(str(tmp_path), table, add, BitMap64([0]))["path"])
    given = pq.ParquetFile(tmp_path / "a.parquet")
    assert copy.schema_arrow.equals(given.schema_arrow, check_metadata=True)


def test_statistics_hold_for_the_remaining_rows(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "n": pa.array([9, 5, None, 7], pa.int32()),
            "d": pa.array([Decimal("0.1"), Decimal("12345678901234567890.2"), None, Decimal(3)]),
            "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 4)]),
            "ts": pa.array(INSTANTS, pa.timestamp("us", "UTC")),
            "text": ["a", "x" * 40, None, "é" * 33],
            "f": [1.5, 2.5, None, float("nan")],
            "b": [b"1", b"2", b"3", None],
            "s": [{"x": 1}, None, {"x": None}, {"x": 4}],
            "none": pa.array([None] * 4, pa.int64()),
            "unasked": [1, 2, 3, 4],
        }
    )
    kinds = ["long", "decimal(38,18)", "date", "timestamp", "string", "double", "binary"]
    columns = [field(name, kind) for name, kind in zip(rows.column_names[:7], kinds, strict=True)]
    inner = struct(field("x", "long"))
    table = metadata(
        *columns, field("s", inner), field("none", "long"), field("unasked", "long"),
        field("absent", "long"),
    )  # fmt: skip
    names = [*rows.column_names[:7], "none", "absent"]
    ends = dict.fromkeys(rows.column_names[:7], 0) | {"s": {"x": 0}}
    old = {"numRecords": 4, "minValues": ends, "maxValues": ends}
    old["nullCount"] = dict.fromkeys(names, 0) | {"s": {"x": 0}}
    add = laid(tmp_path, rows, old)
    assert json.loads(rewritten(str(tmp_path), table, add, BitMap64([0]))["stats"]) == {
        "numRecords": 3,
        "minValues": {
            "n": 5,
            "d": 3,
            "day": "2026-01-02",
            "ts": "1969-12-31T23:59:59.999777Z",
            "text": "x" * 32,
            "s": {"x": 4},
        },
        "maxValues": {
            "n": 7,
            "d": 12345678901234567890.2,
            "day": "2026-01-04",
            "ts": "9999-12-31T23:59:59.999999Z",
            "text": "é" * 32 + "\U0010ffff",
            "s": {"x": 4},
        },
        "nullCount": {
            "n": 1, "d": 1, "day": 1, "ts": 0, "text": 1, "f": 1, "b": 1, "s": {"x": 2},
            "none": 3, "absent": 3,
        },
        "tightBounds": True,
    }  # fmt: skip
    text = rewritten(str(tmp_path), table, add, BitMap64([0]))["stats"]
    assert "12345678901234567890.2" in text
    assert "\\u" not in text, "deltalake misreads escapes of characters from U+20000 on"


@example(["a" * 32 + "\U0010ffff" * 2])
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1))
def test_bounds_of_text_surround_it(texts: list[str]) -> None:
    leaf = Leaf(("t",), ("t",), "string")
    stats = CopyStats({"nullCount": {"t": 0}, "minValues": {"t": ""}}, [leaf], {("t",): ("t",)})
    for text in texts:
        stats.add(pa.table({"t": [text]}))
    said = json.loads(stats.text())
    assert said["minValues"]["t"] <= min(texts)
    assert said.get("maxValues", {}).get("t", "\U0010ffff" * 40) >= max(texts)
    assert len(said["minValues"]["t"]) <= 32


def test_text_that_deltalake_wrote_as_views_is_copied(tmp_path: Path) -> None:
    inner, texts = {"s": ["a", None], "m": [("k", "v")]}, ["a", "b", None]
    kind = pa.struct({"s": pa.list_(pa.string_view()), "m": pa.map_(pa.string(), pa.string_view())})
    columns = {
        "id": [1, 2, 3],
        "t": pa.array(texts, pa.string_view()),
        "b": pa.array([b"a", b"b", None], pa.binary_view()),
        "n": pa.array([inner] * 3, kind),
    }
    add = laid(tmp_path, pa.table(columns), {"nullCount": {"t": 1}, "minValues": {"t": "a"}})
    copy = rewritten(str(tmp_path), metadata(field("t", "string")), add, BitMap64([0]))
    rows = copied(tmp_path, copy)
    assert rows["t"].to_pylist() == texts[1:]
    assert rows["b"].to_pylist() == [b"b", None]
    assert rows["n"].to_pylist() == [inner] * 2
    assert json.loads(copy["stats"])["minValues"] == {"t": "b"}


def test_columns_are_matched_by_field_id_where_the_table_says_so(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("old", pa.int64(), metadata={b"PARQUET:field_id": b"7"})])
    table = metadata(field("id", "long", 7, "col-1"), delta_columnMapping_mode="id")
    old = {"nullCount": {"col-1": 0}, "minValues": {"col-1": 1}, "maxValues": {"col-1": 2}}
    add = laid(tmp_path, pa.table([[1, 2]], schema=schema), old)
    stats = json.loads(rewritten(str(tmp_path), table, add, BitMap64([0]))["stats"])
    assert stats["minValues"] == stats["maxValues"] == {"col-1": 2}


TRACKED = {
    "delta_enableRowTracking": "true",
    "delta_rowTracking_materializedRowIdColumnName": "_row-id",
    "delta_rowTracking_materializedRowCommitVersionColumnName": "_row-version",
}


def test_rows_keep_their_ids_in_a_copy_and_in_a_copy_of_it(tmp_path: Path) -> None:
    table = metadata(field("id", "long"), **TRACKED)
    add = laid(tmp_path, ids(10, 11, 12, 13)) | {"baseRowId": 100, "defaultRowCommitVersion": 3}
    copy = rewritten(str(tmp_path), table, add, BitMap64([1]))
    domains = {"delta.rowTracking": {"configuration": '{"rowIdHighWaterMark": 103}'}}
    (numbered,), domain = with_row_ids([copy], domains, 8)
    assert (numbered["baseRowId"], numbered["defaultRowCommitVersion"]) == (104, 8)
    assert json.loads(domain["configuration"]) == {"rowIdHighWaterMark": 106}
    again = copied(tmp_path, rewritten(str(tmp_path), table, numbered, BitMap64([0])))
    assert again.to_pydict() == {"id": [12, 13], "_row-id": [102, 103], "_row-version": [3, 3]}


def test_the_first_ids_of_a_table_begin_at_0() -> None:
    adds = [{"path": name, "stats": '{"numRecords": 5}'} for name in "ab"]
    numbered, domain = with_row_ids(adds, {}, 1)
    assert [add["baseRowId"] for add in numbered] == [0, 5]
    assert json.loads(domain["configuration"]) == {"rowIdHighWaterMark": 9}


def test_a_file_without_ids_in_a_table_that_tracks_them_is_refused(tmp_path: Path) -> None:
    add = laid(tmp_path, ids(1, 2))
    with pytest.raises(DamagedError, match="no baseRowId for this file"):
        rewritten(str(tmp_path), metadata(field("id", "long"), **TRACKED), add, BitMap64([1]))
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_change_data_has_the_rows_that_this_removal_takes(tmp_path: Path) -> None:
    (tmp_path / "p=1").mkdir()
    add = laid(tmp_path / "p=1", ids(*range(10)), row_group_size=3) | {"path": "p=1/a.parquet"}
    (vector,) = write_vectors(str(tmp_path), [BitMap64([1, 2])])
    change = write_change_data(
        str(tmp_path), IDS, add | {"deletionVector": vector}, BitMap64([2, 3, 8])
    )
    assert change is not None
    assert change["path"].startswith("_change_data/p=1/cdc-00000-")
    assert change["dataChange"] is False
    rows = copied(tmp_path, change)
    assert rows.to_pydict() == {"id": [3, 8], "_change_type": ["delete", "delete"]}
    hidden = add | {"deletionVector": vector}
    assert write_change_data(str(tmp_path), IDS, hidden, BitMap64([2])) is None


@pytest.mark.parametrize("write", [rewritten, write_change_data])
def test_a_position_beyond_the_file_is_refused(tmp_path: Path, write: Any) -> None:
    add = laid(tmp_path, ids(1, 2))
    with pytest.raises(VerificationError, match="it was deleted"):
        write(str(tmp_path), IDS, add, BitMap64([1, 2]))
    assert not list(tmp_path.rglob("*-00000-*"))


def test_a_damaged_or_missing_file_leaves_no_copy(tmp_path: Path) -> None:
    add = laid(tmp_path, ids(*range(10_000)), row_group_size=1000)
    content = (tmp_path / "a.parquet").read_bytes()
    middle = len(content) // 2
    (tmp_path / "a.parquet").write_bytes(content[:middle] + bytes(2000) + content[middle + 2000 :])
    with pytest.raises(DamagedError, match="cannot be read as a data file"):
        rewritten(str(tmp_path), IDS, add, BitMap64([1]))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(DamagedError, match="it is missing"):
        rewritten(str(tmp_path), IDS, add, BitMap64([1]))
    assert list(tmp_path.iterdir()) == []


def test_leaves_are_named_logically_and_physically() -> None:
    inner = struct(field("a", "long", 2, "col-2"))
    listed = {"type": "array", "elementType": inner}
    table = metadata(field("s", inner, 1, "col-1"), field("l", listed))
    assert leaves(table) == [
        Leaf(("s", "a"), ("col-1", "col-2"), "long"),
        Leaf(("l",), ("l",), listed),
    ]


def test_rows_are_streamed_in_bounded_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention.delta.parquet_rows.BATCH_BYTES", 4096)
    monkeypatch.setattr("retention.delta.parquet_rows.GROUP_BYTES", 20_000)
    add = laid(tmp_path, ids(*range(20_000)))
    copy = rewritten(str(tmp_path), IDS, add, BitMap64([0, 19_999]))
    written = pq.ParquetFile(tmp_path / copy["path"])
    assert written.num_row_groups > 4
    assert pc.sum(written.read()["id"]).as_py() == sum(range(1, 19_999))
