"""Rows of a frame get the same shares in any division, and the same segments as single messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.topic_policy import TopicPolicy
from retention.dialects import numbering
from retention.dialects.dialect import Dialect, RowBlock, Share
from retention.dialects.iggy import Iggy
from retention.dialects.jetstream import JetStream
from retention.dialects.numbering import BlockRows, lay
from retention.errors import RefusedError, UsageError
from retention.layout.partition_tails import PartitionTails
from retention.layout.segment_roll import ActiveSegment, RollRule, Tail, roll
from retention.layout.topic_segment_roll import record_sizes

STREAM = JetStream(1, RollRule(200, 20), "file")
STEP = 9
"""The time between two messages: some segments end by span, others by size."""
TOPIC = Iggy("clicks", TopicPolicy(2, segment_size=300, max_message_size=400))
TAILS = {0: Tail(7, ActiveSegment(5, 90, 3)), 1: Tail(0)}
ROWS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 1)), max_size=40).map(sorted)
CUTS = st.lists(st.integers(0, 40), max_size=4).map(sorted)


def blocks_of(
    dialect: Dialect, rows: list[tuple[int, int]], cuts: list[int]
) -> dict[RowBlock, BlockRows]:
    """Rows of (payload length, task) in blocks, cut at these positions and at changes of the task."""
    parts = [part for _, part in rows]
    changes = (np.flatnonzero(np.diff(parts)) + 1).tolist()
    blocks: dict[RowBlock, BlockRows] = {}
    for number, (begin, end) in enumerate(pairwise(sorted({0, *cuts, *changes, len(rows)}))):
        inside = rows[begin:end]
        table = pa.table(
            {
                "subject": ["s"] * len(inside),
                "headers": pa.nulls(len(inside), pa.binary()),
                "payload": [b"x" * length for length, _ in inside],
            }
        )
        sizes = dialect.sizes(table)
        laid_by = STEP * np.arange(begin, end) if dialect is STREAM else np.array(parts[begin:end])
        edges = int(laid_by[0]), int(laid_by[-1])
        block = RowBlock(parts[begin], number, len(inside), int(sizes.sum()), *edges)
        blocks[block] = laid_by, sizes
    return blocks


def shares_of(dialect: Dialect, rows: list[tuple[int, int]], cuts: list[int]) -> list[Share]:
    """Lay rows by each method."""
    layer = dialect.layer(TAILS.__getitem__, 0, 9_000)
    for block, (laid_by, sizes) in blocks_of(dialect, rows, cuts).items():
        layer.take(block, laid_by, sizes)
    return layer.shares()


@pytest.mark.parametrize("dialect", [STREAM, TOPIC], ids=["stream", "topic"])
@given(rows=ROWS, cuts=CUTS)
def test_where_batches_are_cut_changes_nothing(
    dialect: Dialect, rows: list[tuple[int, int]], cuts: list[int]
) -> None:
    ordered = sorted(rows, key=lambda row: row[1])
    cuts = [min(cut, len(rows)) for cut in cuts]
    got, whole = shares_of(dialect, ordered, cuts), shares_of(dialect, ordered, [])
    assert got == whole


@pytest.mark.parametrize("dialect", [STREAM, TOPIC], ids=["stream", "topic"])
@given(rows=ROWS, cuts=CUTS)
def test_totals_lay_rows_where_each_of_them_would(
    dialect: Dialect, rows: list[tuple[int, int]], cuts: list[int]
) -> None:
    ordered = sorted(rows, key=lambda row: row[1])
    cuts = [min(cut, len(rows)) for cut in cuts]
    blocks = blocks_of(dialect, ordered, cuts)
    asked: list[RowBlock] = []

    def rows_of(wanted: Sequence[RowBlock]) -> dict[RowBlock, BlockRows]:
        asked.extend(wanted)
        return {block: blocks[block] for block in wanted}

    laid = lay(dialect.layer(TAILS.__getitem__, 0, 9_000), [*blocks], rows_of)
    assert laid.shares() == shares_of(dialect, ordered, cuts)
    whole = dialect.layer(TAILS.__getitem__, 0, 9_000)
    for block, of_rows in blocks.items():
        whole.take(block, *of_rows)
    whole.shares()
    assert (laid.ends.next_seq, laid.ends.open_base) == (whole.ends.next_seq, whole.ends.open_base)


@given(times=st.lists(st.integers(0, 90), min_size=1, max_size=40), cuts=CUTS)
def test_totals_lay_rows_whose_times_go_back_where_each_of_them_would(
    times: list[int], cuts: list[int]
) -> None:
    sizes = np.full(len(times), 31)
    blocks: dict[RowBlock, BlockRows] = {}
    bounds = sorted({0, *(min(cut, len(times)) for cut in cuts), len(times)})
    for number, (begin, end) in enumerate(pairwise(bounds)):
        inside = np.array(times[begin:end])
        edges = int(inside[0]), int(inside.max())
        blocks[RowBlock(0, number, end - begin, 31 * (end - begin), *edges)] = (
            inside,
            sizes[begin:end],
        )
    laid = lay(STREAM.layer(TAILS.__getitem__, 0, 9_000), [*blocks], lambda _: blocks)
    whole = STREAM.layer(TAILS.__getitem__, 0, 9_000)
    for block, of_rows in blocks.items():
        whole.take(block, *of_rows)
    assert laid.shares() == whole.shares()


def test_only_blocks_in_which_something_ends_are_asked_by_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numbering, "MOST_ROWS", 40)
    dialect = JetStream(1, RollRule(31 * 95), "file")
    rows = [(number % 2, 0) for number in range(1_000)]
    blocks = blocks_of(dialect, rows, [*range(0, 1_000, 10)])
    asked: list[list[int]] = []

    def rows_of(wanted: Sequence[RowBlock]) -> dict[RowBlock, BlockRows]:
        asked.append([block.number for block in wanted])
        return {block: blocks[block] for block in wanted}

    laid = lay(dialect.layer({0: Tail(1)}.__getitem__, 0, 0), [*blocks], rows_of)
    assert len({share.base for share in laid.shares()}) == 11
    assert all(len(numbers) <= 4 for numbers in asked), "forty rows at a time"
    assert sum(map(len, asked)) <= 15, "of a hundred blocks, for ten segments that end"


@given(rows=ROWS)
def test_rows_of_a_stream_go_where_messages_go_one_after_another(
    rows: list[tuple[int, int]],
) -> None:
    ordered = sorted(rows, key=lambda row: row[1])
    sizes = np.array([length + 31 for length, _ in ordered], dtype=np.int64)
    seqs, times = np.arange(7, 7 + len(rows)), STEP * np.arange(len(rows))
    bases = [0] * len(rows)
    for piece in roll(TAILS[0].active, seqs, sizes, times, STREAM.rule):
        bases[piece.start : piece.end] = [piece.active.base] * (piece.end - piece.start)
    shares = shares_of(STREAM, ordered, [])
    assert [one.base for one in shares for _ in range(one.messages)] == bases
    assert sum(one.bytes for one in shares) == sizes.sum()
    assert [one.first_seq for one in shares] == [one.wrote["min_seq"] for one in shares]


@given(rows=ROWS)
def test_rows_of_a_topic_go_where_a_send_puts_them(rows: list[tuple[int, int]]) -> None:
    ordered = sorted(rows, key=lambda row: row[1])
    ends, bases = PartitionTails(TAILS.__getitem__, 0, TOPIC.policy, 9), []
    for address in sorted({part for _, part in rows}):
        lengths = np.array([length for length, part in ordered if part == address])
        sizes = record_sizes(np.zeros_like(lengths), lengths, TOPIC.policy)
        partition, batches = ends.append(address, sizes)
        bases += [
            (partition, batch.base) for batch in batches for _ in range(batch.start, batch.end)
        ]
    shares = shares_of(TOPIC, ordered, [])
    assert [(one.partition, one.base) for one in shares for _ in range(one.messages)] == bases


def test_a_row_that_cannot_be_a_message_is_refused() -> None:
    share = Share(0, 0, 1, 1, 1, 1)
    row = {"ts_ns": 1, "subject": "a b", "headers": None, "payload": b"x"}
    schema = pa.schema(
        {
            "ts_ns": pa.int64(),
            "subject": pa.string(),
            "headers": pa.binary(),
            "payload": pa.binary(),
        }
    )
    with pytest.raises(UsageError, match="a row's subject is 'a b'"):
        STREAM.completed(pa.Table.from_pylist([row], schema), share, 0)


def test_a_row_that_a_server_would_not_take_is_refused_by_its_name() -> None:
    row = {
        "partition": 7,
        "key": None,
        "headers": None,
        "payload": b"x",
        "id": None,
        "origin_ts_ns": 1,
    }
    schema = pa.schema(
        {
            "partition": pa.int64(),
            "key": pa.binary(),
            "headers": pa.binary(),
            "payload": pa.binary(),
            "id": pa.string(),
            "origin_ts_ns": pa.int64(),
        }
    )
    with pytest.raises(RefusedError, match="server error 3007, PartitionNotFound"):
        TOPIC.completed(pa.Table.from_pylist([row], schema), Share(0, 0, 0, 0, 1, 1), 0)
