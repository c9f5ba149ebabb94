from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.inventory import DataFile
from retention.datafile import parquet
from retention.datafile.row_groups import merged_by_seq, pick_rows, rows_in_order
from retention.errors import DamagedError
from retention.schemas.messages import FILE_COLUMNS
from tests.support.laws import law

ROWS = 40


def file_of(folder: Path, seqs: list[int], group: int = 10) -> DataFile:
    """A file with sequences as payloads, in row groups of `group`."""
    texts = {"subject": "a", "headers": None, "payload": b""}
    rows = [
        dict.fromkeys(FILE_COLUMNS.names, 0) | texts | {"seq": seq, "payload": str(seq).encode()}
        for seq in seqs
    ]
    for row in rows:
        row.update(time=None, marker=False, msg_id=None)
    table = pa.Table.from_pylist(rows, schema=FILE_COLUMNS)
    pq.write_table(table, folder / "a.parquet", row_group_size=group)
    return DataFile("a", 0, 1, str(folder / "a.parquet"), str(folder / "digest"))


def picked(file: DataFile, *seqs: int) -> list[tuple[int, bytes]]:
    found = pick_rows(file, np.array(seqs, np.int64), ("seq", "payload"))
    return list(zip(found["seq"].to_pylist(), found["payload"].to_pylist(), strict=True))


def test_the_rows_with_these_sequences_come_in_order(tmp_path: Path) -> None:
    file = file_of(tmp_path, [*range(20, 0, -1), *range(21, ROWS)])
    assert picked(file, 3, 20, 21, 39, 77) == [(3, b"3"), (20, b"20"), (21, b"21"), (39, b"39")]
    assert picked(file, 0, 77) == []
    assert picked(file) == []


def test_only_row_groups_that_may_hold_one_are_read(tmp_path: Path) -> None:
    file = file_of(tmp_path, list(range(ROWS)))
    opened = parquet.open_messages(file)
    at = opened.schema_arrow.get_field_index("payload")
    ruined = bytearray(Path(file.location).read_bytes())
    for group in (0, 1, 3):
        chunk = opened.metadata.row_group(group).column(at)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        ruined[start : start + chunk.total_compressed_size] = b"\0" * chunk.total_compressed_size
    Path(file.location).write_bytes(ruined)
    assert picked(file, 20, 29) == [(20, b"20"), (29, b"29")]
    with pytest.raises(DamagedError):
        picked(file, 19)


def in_order(file: DataFile) -> list[list[int]]:
    return [rows["seq"].to_pylist() for rows in rows_in_order(file, ("seq", "payload"))]


def test_all_rows_come_a_row_group_at_a_time(tmp_path: Path) -> None:
    file = file_of(tmp_path, list(range(ROWS)))
    assert in_order(file) == [list(range(at, at + 10)) for at in range(0, ROWS, 10)]
    shuffled = file_of(tmp_path, [3, 1, 2, 5, 4, 6], group=3)
    assert in_order(shuffled) == [[1, 2, 3], [4, 5, 6]]


def test_row_groups_that_do_not_follow_each_other_are_read_at_once(tmp_path: Path) -> None:
    assert in_order(file_of(tmp_path, [4, 5, 6, 1, 2, 3], group=3)) == [[1, 2, 3, 4, 5, 6]]
    assert in_order(file_of(tmp_path, [1, 3, 5, 2, 4, 6], group=3)) == [[1, 2, 3, 4, 5, 6]]


@law
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_interleaved_sources_come_in_order_a_table_at_a_time(
    places: list[tuple[int, bool]],
) -> None:
    """Each sequence is in one of four sources, and may begin a new table there."""
    tables: list[list[list[int]]] = [[[]], [[]], [[]], [[]]]
    for seq, (source, begins) in enumerate(places):
        if begins:
            tables[source].append([])
        tables[source][-1].append(seq)
    sources = [
        iter([pa.table({"seq": pa.array(seqs, pa.int64())}) for seqs in parts]) for parts in tables
    ]
    found = [table["seq"].to_pylist() for table in merged_by_seq(sources)]
    assert all(found)
    assert [seq for seqs in found for seq in seqs] == list(range(len(places)))
