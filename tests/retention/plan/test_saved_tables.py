"""Tables of saved plans are written and read in pieces, and verified by digest."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.plan import saved_tables
from retention.plan.saved_tables import verified_table, write_table
from retention.storage import tables as tables_at_rest

SCHEMA = pa.schema([pa.field("path", pa.string()), pa.field("seqs", pa.list_(pa.int64()))])


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_tables, "GROUP_VALUES", 6)
    monkeypatch.setattr(saved_tables, "READ_VALUES", 4)


def rows(*lengths: int) -> pa.Table:
    lists = [list(range(length)) for length in lengths]
    return pa.table([[f"f{length}" for length in lengths], lists], schema=SCHEMA)


def groups_of(location: Path) -> list[int]:
    metadata = pq.read_metadata(location)
    return [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ((), [0]),
        ((1, 2, 3, 4), [3, 1]),
        ((9, 1, 9), [1, 1, 1]),
        ((0,) * 8, [6, 2]),
        ((0, 7, 0), [1, 1, 1]),
        ((6, 0, 0, 1), [3, 1]),
    ],
)
def test_row_groups_hold_few_values_and_whole_lists(
    tmp_path: Path, lengths: tuple[int, ...], groups: list[int]
) -> None:
    place, table = tmp_path / "table", rows(*lengths)
    digest = write_table(str(place), SCHEMA, [table])
    assert digest == hashlib.sha256(place.read_bytes()).hexdigest()
    assert groups_of(place) == groups
    one_by_one = [table.slice(at, 1) for at in range(table.num_rows)]
    assert write_table(str(tmp_path / "again"), SCHEMA, one_by_one) == digest
    verified = verified_table(str(place), digest)
    assert verified is not None
    assert pa.concat_tables(verified.pieces()) == table


def test_a_file_with_another_digest_is_not_believed(tmp_path: Path) -> None:
    digest = write_table(str(tmp_path / "table"), SCHEMA, [rows(1)])
    write_table(str(tmp_path / "table"), SCHEMA, [rows(2)])
    assert verified_table(str(tmp_path / "table"), digest) is None


def test_what_was_verified_is_what_is_read(tmp_path: Path) -> None:
    digest = write_table(str(tmp_path / "table"), SCHEMA, [rows(1)])
    verified = verified_table(str(tmp_path / "table"), digest)
    (tmp_path / "table").write_bytes(b"another")
    assert verified is not None
    assert pa.concat_tables(verified.pieces()) == rows(1)


def test_few_values_are_decoded_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_tables, "GROUP_VALUES", 1000)
    digest = write_table(str(tmp_path / "table"), SCHEMA, [rows(*[2] * 20)])
    assert groups_of(tmp_path / "table") == [20]
    verified = verified_table(str(tmp_path / "table"), digest)
    assert verified is not None
    assert max(piece.num_rows for piece in verified.pieces()) == 2


def test_pieces_are_let_go_once_their_group_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: set[int] = set()
    most = 0
    taken = tables_at_rest._taken

    def watched(waiting: list[pa.Table]) -> pa.Table:
        group = taken(waiting)
        groups.add(id(group))
        weakref.finalize(group, groups.discard, id(group))
        groups_alive.append(len(groups))
        return group

    groups: set[int] = set()
    groups_alive: list[int] = []
    monkeypatch.setattr(tables_at_rest, "_taken", watched)

    def made() -> Iterator[pa.Table]:
        nonlocal most
        for number in range(30):
            table = rows(3)
            alive.add(number)
            weakref.finalize(table, alive.discard, number)
            most = max(most, len(alive))
            yield table
            del table

    write_table(str(tmp_path / "table"), SCHEMA, made())
    assert groups_of(tmp_path / "table") == [2] * 15
    assert most <= 4
    assert set(groups_alive) == {1}
