"""Blocks and merges sort rows from any input order; sorted runs are not processed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.row_order import KEY_LENGTH
from retention.dialects import block_files
from retention.dialects.block_files import merge_blocks, narrow_of, rows_of, write_blocks
from retention.dialects.jetstream import JetStream
from retention.errors import StorageError
from retention.layout import stored_blocks
from retention.layout.segment_roll import RollRule
from retention.layout.stored_blocks import BlockMerge, StoredBlock, arranged, is_bearable, parts_of
from tests.support.laws import law

STREAM = JetStream(1, RollRule(200, 20), "file")
Row = tuple[int, str]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    times, subjects = ([row[at] for row in rows] for at in range(2))
    return pa.RecordBatch.from_pydict(
        {
            "ts_ns": pa.array(times, pa.int64()),
            "subject": pa.array(subjects, pa.string()),
            "headers": pa.nulls(len(rows), pa.binary()),
            "payload": pa.array([b"1234567890"] * len(rows), pa.binary()),
        }
    )


def brought_into_order(
    place: Path, parts: list[list[list[Row]]]
) -> tuple[list[StoredBlock | BlockMerge], list[StoredBlock]]:
    """Write the batches of each part, and execute each merge; returns the arrangement, and the sorted blocks."""
    left = [
        block
        for number, batches in enumerate(parts)
        for block in write_blocks(str(place / f"{number}"), map(batch_of, batches), STREAM)
    ]
    entries = arranged(left)
    blocks: list[StoredBlock] = []
    for number, entry in enumerate(entries):
        if isinstance(entry, BlockMerge):
            blocks += merge_blocks(str(place / f"merged-{number}"), entry, STREAM)
        else:
            blocks.append(entry)
    return entries, blocks


def rows_in(blocks: list[StoredBlock]) -> list[Row]:
    return [
        (row["ts_ns"], row["subject"])
        for rows in rows_of(blocks, STREAM.order)
        for row in rows.to_pylist()
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, blocks and ranges of a few rows."""
    monkeypatch.setattr(block_files, "RUN_BYTES", 300)
    monkeypatch.setattr(block_files, "BLOCK_BYTES", (20, 90))
    monkeypatch.setattr(stored_blocks, "RANGE_BYTES", 1_500)


@pytest.mark.usefixtures("small")
@law
@given(
    st.lists(
        st.lists(
            st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), min_size=1, max_size=9),
            max_size=4,
        ),
        max_size=4,
    )
)
def test_rows_end_up_in_one_order(parts: list[list[list[Row]]]) -> None:
    with TemporaryDirectory() as place:
        _, blocks = brought_into_order(Path(place), parts)
        given_rows = [row for batches in parts for batch in batches for row in batch]
        assert rows_in(blocks) == sorted(given_rows)
        for block, rows in zip(blocks, rows_of(blocks, STREAM.order), strict=True):
            laid_by, sizes = narrow_of(block)
            assert (rows.num_rows, int(sizes.sum())) == (block.rows, block.bytes)
            assert laid_by.tolist() == rows["ts_ns"].to_pylist()
            assert (int(laid_by[0]), int(laid_by[-1])) == (block.first, block.last)


def test_blocks_in_another_order_than_time_keep_their_latest_time(tmp_path: Path) -> None:
    dialect = STREAM.ordered_by([pa.field("order_by_0", pa.int64())])
    times = [1_000_000 * (number * 31 % 17) for number in range(100)]
    rows = batch_of([(time, "a") for time in times])
    rows = rows.append_column("order_by_0", pa.array(range(99, -1, -1)))
    [block] = write_blocks(str(tmp_path / "rows"), [rows], dialect)
    assert (block.first, block.last) == (times[-1], max(times))
    [sorted_rows] = rows_of([block], dialect.order)
    assert sorted_rows["ts_ns"].to_pylist() == times[::-1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]], ids=["in order", "whole files in none"])
def test_parts_that_do_not_overlap_are_not_merged(tmp_path: Path, order: list[int]) -> None:
    parts = [[[(100 * part + at, "a") for at in range(20)]] for part in order]
    entries, blocks = brought_into_order(tmp_path, parts)
    assert not [entry for entry in entries if isinstance(entry, BlockMerge)]
    assert [time for time, _ in rows_in(blocks)] == [
        100 * part + at for part in range(3) for at in range(20)
    ]


def test_two_files_in_one_part_do_not_cover_the_one_between(tmp_path: Path) -> None:
    first, second, third = ([(1_000 * file + at, "a") for at in range(50)] for file in range(3))
    entries, blocks = brought_into_order(tmp_path, [[third, first], [second]])
    assert not [entry for entry in entries if isinstance(entry, BlockMerge)]
    assert rows_in(blocks) == first + second + third


@pytest.mark.usefixtures("small")
def test_rows_in_order_are_written_as_they_come(tmp_path: Path) -> None:
    written = []

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 100, 10):
            yield batch_of([(first + at, "a") for at in range(10)])
            written.append((tmp_path / "0").exists())

    blocks = write_blocks(str(tmp_path / "0"), batches(), STREAM)
    assert written[2:] == [True] * 8
    assert max(block.rows for block in blocks) <= 10
    row = blocks[0].bytes // blocks[0].rows
    assert max(block.bytes for block in blocks) < block_files.BLOCK_BYTES[1] + row
    assert rows_in(blocks) == [(time, "a") for time in range(100)]


def test_bursts_of_rows_in_order_share_a_block(tmp_path: Path) -> None:
    batches = [[(1_000_000 * burst + at, "a") for at in range(50)] for burst in range(20)]
    [block] = write_blocks(str(tmp_path / "0"), map(batch_of, batches), STREAM)
    assert block.rows == 1_000


@pytest.mark.usefixtures("small")
def test_no_row_of_files_in_order_is_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(block_files, "sorted_places")
    ends = [(1_000 * file, 1_000 * file + 53) for file in (1, 0, 2)]
    batches = [[(time, "a")] for first, end in ends for time in range(first, end)]
    blocks = write_blocks(str(tmp_path / "0"), map(batch_of, batches), STREAM)
    assert len(rows_in(blocks)) == 3 * 53


@pytest.mark.usefixtures("small")
def test_rows_whose_keys_are_equal_as_far_as_they_go_are_sorted(tmp_path: Path) -> None:
    begin = "a" * KEY_LENGTH
    rows = [(1, begin + end) for end in "dcba"]
    _, blocks = brought_into_order(tmp_path, [[[row] for row in rows]])
    assert rows_in(blocks) == rows[::-1]


def test_a_block_ends_at_a_gap_of_64_bits(tmp_path: Path) -> None:
    rows = [(-(2**63), "a"), (1 - 2**63, "a"), (2**63 - 1, "a")]
    _, blocks = brought_into_order(tmp_path, [[rows]])
    assert [block.rows for block in blocks] == [2, 1]
    assert rows_in(blocks) == rows


@pytest.mark.usefixtures("small")
def test_only_what_overlaps_is_merged(tmp_path: Path) -> None:
    late = [[(at, "a") for at in range(40)], [(at, "a") for at in range(30, 80)]]
    entries, blocks = brought_into_order(tmp_path, [[rows] for rows in late])
    merged = {
        id(block) for entry in entries if isinstance(entry, BlockMerge) for block in entry.blocks
    }
    assert 2 <= len(merged) < len(blocks) / 2
    assert rows_in(blocks) == sorted(late[0] + late[1])


@pytest.mark.usefixtures("small")
def test_a_range_is_read_by_one_merge_of_its_blocks_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    times = random.permutation(400).reshape(4, 100)
    entries, blocks = brought_into_order(
        tmp_path, [[[(int(time), "a") for time in part]] for part in times]
    )
    lengths = [entry.length for entry in entries if isinstance(entry, BlockMerge)]
    assert len(lengths) > 10
    assert rows_in(blocks) == [(time, "a") for time in range(400)]


def test_a_merge_writes_the_places_of_rows_alone(tmp_path: Path) -> None:
    parts = [[[(time, "a" * 100) for time in range(part, 200, 2)]] for part in range(2)]
    entries, blocks = brought_into_order(tmp_path, parts)
    [merge] = entries
    assert [block.merge for block in blocks] == [merge] * len(blocks)
    assert sum(block.length - block.narrow for block in blocks) == 8 * 200
    assert rows_in(blocks) == [(time, "a" * 100) for time in range(200)]


def block_at(low: int, high: int, length: int = 100) -> StoredBlock:
    return StoredBlock("", 0, 0, length, 1, length, low, high, (True, low), (True, high))


def test_merges_that_read_everything_again_and_again_are_not_borne() -> None:
    mebibyte = 1 << 20
    tall = [block_at(0, 1_000, 4 * mebibyte) for _ in range(100)]
    steps = [block_at(at, at + 1, 64 * mebibyte) for at in range(0, 1_000, 100)]
    assert is_bearable(arranged(steps))
    assert is_bearable(arranged(tall[:16] + steps[:2]))
    assert not is_bearable(arranged(tall + steps)), "each range reads all of the tall ones"
    assert not is_bearable(arranged([block_at(5, 5, 300 * mebibyte)] * 2)), "one key cannot be cut"


@pytest.mark.usefixtures("small")
def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch_of([(at, "a") for at in range(90)])
        raise StorageError("the disk of the source failed")

    with pytest.raises(StorageError):
        write_blocks(str(tmp_path / "0"), broken(), STREAM)
    assert list(tmp_path.iterdir()) == []


def test_a_task_writes_neighbours_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block_at(at, at) for at in range(20)]
    monkeypatch.setattr(stored_blocks, "PART_BYTES", (150, 600))
    sizes = {tasks: [len(part) for part in parts_of(blocks, tasks)] for tasks in (1, 4, 100)}
    assert sizes == {1: [6, 6, 6, 2], 4: [5] * 4, 100: [2] * 10}
    assert [block for part in parts_of(blocks, 4) for block in part] == blocks
    assert parts_of([], 4) == []
