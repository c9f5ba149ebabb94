from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.errors import UsageError
from retention.inspect.messages import Selection, read_messages
from retention.schemas.messages import MESSAGES
from tests.support.sandboxes import ORDERS, lines, opened


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Four days in segments of a day, with two subjects in turn."""
    found = opened(tmp_path, ORDERS).stream("ORDERS")
    pairs = zip(lines(96, "orders.a"), lines(96, "orders.b.c"), strict=True)
    found.publish([pair[number % 2] for number, pair in enumerate(pairs)])
    return found


def seqs(stream: Stream, wanted: Selection) -> list[int]:
    tables = list(read_messages(stream.opened, wanted))
    assert all(table.schema.names == MESSAGES.names for table in tables)
    empty = MESSAGES.empty_table()
    return pa.concat_tables([empty, *tables], promote_options="permissive")["seq"].to_pylist()


def test_all_messages_come_in_order(stream: Stream) -> None:
    assert seqs(stream, Selection()) == list(range(1, 97))


def test_segments_come_one_at_a_time(stream: Stream) -> None:
    assert len(list(read_messages(stream.opened, Selection()))) == 4


def test_partition_and_segment_are_there(stream: Stream) -> None:
    first = next(read_messages(stream.opened, Selection()))
    assert set(first["partition"].to_pylist()) == {0}
    assert set(first["segment"].to_pylist()) == {1}


def test_reading_can_begin_anywhere(stream: Stream) -> None:
    assert seqs(stream, Selection(from_seq=90)) == list(range(90, 97))
    assert seqs(stream, Selection(from_seq=1000)) == []


def test_subjects_are_filtered_as_the_broker_does(stream: Stream) -> None:
    assert seqs(stream, Selection(subject="orders.*")) == list(range(1, 97, 2))
    assert seqs(stream, Selection(subject="orders.>")) == list(range(1, 97))
    assert seqs(stream, Selection(subject="orders.b.c")) == list(range(2, 97, 2))


@pytest.mark.parametrize("count", [1, 24, 25, 60, 96, 1000])
def test_the_last_ones_come_in_order(stream: Stream, count: int) -> None:
    assert seqs(stream, Selection(last=count)) == list(range(max(97 - count, 1), 97))


def test_the_last_ones_of_a_subject_are_counted_after_filtering(stream: Stream) -> None:
    assert seqs(stream, Selection(subject="orders.a", last=20)) == list(range(57, 97, 2))


def test_another_partition_has_nothing(stream: Stream) -> None:
    assert seqs(stream, Selection(partition=1)) == []
    assert len(seqs(stream, Selection(partition=0))) == 96


def test_a_stream_that_holds_nothing_has_no_messages(tmp_path: Path) -> None:
    assert seqs(opened(tmp_path, ORDERS).stream("ORDERS"), Selection()) == []


def test_what_is_no_filter_is_refused(stream: Stream) -> None:
    with pytest.raises(UsageError, match="is not a subject filter"):
        read_messages(stream.opened, Selection(subject="a..b"))
