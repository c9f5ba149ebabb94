from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.errors import DamagedError
from retention.formats.nats import tar, varint
from retention.formats.s2 import stream as s2

MESSAGES: dict[str, list[Any]] = {
    "seq": [3, 2**40],
    "subject": ["a.é", "x" * 300],
    "ts_ns": [-1, 1_790_000_000_123_456_789],
    "headers": [b"h" * 200, None],
    "payload": [b"p" * 70_000, b""],
}


def put(path: Path, content: bytes) -> Path:
    with path.open("wb") as file:
        s2.write_frames(file, [content])
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for table in tar.read(path) for row in table.to_pylist()]


def encoded() -> bytes:
    return b"".join(tar.encode({"state.json": {"messages": 2}}, [pa.table(MESSAGES)]))


def test_entries_are_written_as_the_format_says() -> None:
    table = pa.table(
        {"seq": [300], "subject": ["ab"], "ts_ns": [-2], "headers": [b"h"], "payload": [b"p"]}
    )
    content = b"".join(tar.encode({"d": {"a": 1}}, [table]))
    document = b"\x01\x00\x00\x00\x07" + b"d" + b'{"a":1}'
    message = b"\x02\x03\xac\x02\x01\x01" + b"abhp"
    assert content == b"NATSARC1" + document + message + bytes(5)


def test_entries_are_read_back(tmp_path: Path) -> None:
    document, first, second = rows(put(tmp_path / "a", encoded()))
    assert (document["seq"], document["name"]) == (0, b"state.json")
    assert document["payload"] == b'{"messages":2}'
    assert first == {
        "seq": 3,
        "name": "a.é".encode(),
        "ts_ns": -1,
        "headers": b"h" * 200,
        "payload": b"p" * 70_000,
    }
    assert (second["seq"], second["name"], second["ts_ns"]) == (
        2**40,
        b"x" * 300,
        1_790_000_000_123_456_789,
    )
    assert (second["headers"], second["payload"]) == (b"", b"")


def test_entries_that_span_pieces_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows(put(tmp_path / "a", encoded()))
    monkeypatch.setattr(tar, "_PARSED_BYTES", 1)
    monkeypatch.setattr(s2, "_WRITTEN_BLOCK_BYTES", 9)
    assert rows(put(tmp_path / "b", encoded())) == expected


def test_an_archive_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = b"".join(tar.encode({"state.json": {}}, [pa.table(MESSAGES).slice(1)]))
    for length in range(len(whole)):
        with pytest.raises(DamagedError):
            rows(put(tmp_path / "a", whole[:length]))
    with pytest.raises(DamagedError, match="continues after its end entry"):
        rows(put(tmp_path / "a", whole + b"\x00"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a NATS stream backup"),
        (b"hello" * 100, "not a NATS stream backup"),
        (b"meta.inf".ljust(257, b"\0") + b"ustar\x0000", "v1 backup"),
        (
            b"NATSARC1" + b"\xff" * 60,
            "byte 8 of the archive: an entry begins with malformed numbers",
        ),
        (b"NATSARC1" + b"\x01\x00\x00\x00\xff\xff\xff\xff\x7fx", "claims to be"),
    ],
)
def test_what_is_no_v2_archive_is_refused_by_name(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    with pytest.raises(DamagedError, match=problem) as refused:
        rows(put(tmp_path / "backup.s2", content))
    assert "backup.s2" in str(refused.value)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_numbers_survive_zigzag_and_varints(numbers: list[int]) -> None:
    column = np.array(numbers, dtype=np.int64)
    written = varint.encode([varint.zigzag(column), varint.zigzag(column)]).to_pylist()
    data = np.frombuffer(b"".join(written), dtype=np.uint8)
    places = np.cumsum([0, *map(len, written)])[:-1]
    first, places = varint.decode(data, places)
    second, ends = varint.decode(data, places)
    assert varint.unzigzag(first).tolist() == varint.unzigzag(second).tolist() == numbers
    assert ends.tolist() == np.cumsum(list(map(len, written))).tolist()


def test_varints_are_the_shortest() -> None:
    column = np.array([0, 127, 128, 16_383, 16_384, 2**64 - 1], dtype=np.uint64)
    assert [len(encoded) for encoded in varint.encode([column]).to_pylist()] == [1, 1, 2, 2, 3, 10]
