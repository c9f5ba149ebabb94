from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention.context.context import OpenedStream
from retention.core.counters import Counters
from retention.core.message_rows import complete_rows
from retention.datafile import parquet
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ConflictError,
    RefusedError,
    UsageError,
    VerificationError,
)
from retention.ingest.append import Appended, append_rows
from retention.ingest.idempotency import BatchIdentity, MicroBatch
from tests.support.plain_store import opened_stream, store_of


def batch(*payloads: str, ts_ns: int = 0) -> pa.Table:
    """Messages on one subject, 30 + 8 + their payload bytes each."""
    raw = pa.table(
        {
            "subject": pa.array(["orders.a"] * len(payloads)),
            "headers": pa.nulls(len(payloads), pa.binary()),
            "payload": pa.array([payload.encode() for payload in payloads], pa.binary()),
            "ts_ns": pa.array([ts_ns] * len(payloads), pa.int64()),
        }
    )
    return complete_rows(raw, "file")


def stored(opened: OpenedStream) -> list[tuple[int, int, str]]:
    rows = store_of(opened).rows()
    payloads = (payload.decode() for payload in rows["payload"].to_pylist())
    return list(zip(rows["segment"].to_pylist(), rows["seq"].to_pylist(), payloads, strict=True))


def counters(opened: OpenedStream) -> Counters:
    return store_of(opened).snapshot().counters


def test_the_first_write_creates_the_stream_and_counts_from_one(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    assert append_rows(opened, [batch("x", "y")]) == Appended(1, 2, 2, 78, 1)
    assert stored(opened) == [(1, 1, "x"), (1, 2, "y")]
    assert counters(opened) == Counters({0: 3}, {0: 1}, {})


def test_batches_continue_each_other_in_one_file(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    append_rows(opened, [batch("a"), batch(), batch("b", "c")])
    append_rows(opened, [batch("d")])
    assert [seq for _, seq, _ in stored(opened)] == [1, 2, 3, 4]
    assert store_of(opened).versions[-1][0].num_rows == 2


def test_segments_roll_at_their_size_across_batches_and_appends(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, segment_size=78)
    append_rows(opened, [batch("a"), batch("b", "c", "d", "e")])
    append_rows(opened, [batch("f", "g")])
    assert [base for base, _, _ in stored(opened)] == [1, 1, 3, 3, 5, 5, 7]
    assert counters(opened).open_base == {0: 7}


def test_segments_roll_at_their_span(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, segment_span="1s")
    append_rows(opened, [batch("a", ts_ns=0)])
    append_rows(opened, [batch("b", ts_ns=999_999_999), batch("c", ts_ns=1_000_000_000)])
    assert [base for base, _, _ in stored(opened)] == [1, 1, 3]


def test_first_seq_of_the_configuration_is_where_a_new_stream_begins(tmp_path: Path) -> None:
    assert append_rows(opened_stream(tmp_path, first_seq=100), [batch("x")]).first_seq == 100


def test_rows_that_others_appended_push_the_next_sequence_up(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    append_rows(opened, [batch("x", "y", "z")])
    store = store_of(opened)
    files, known = store.versions[-1]
    store.versions[-1] = files, replace(known, next_seq={0: 2})
    assert append_rows(opened, [batch("w")]).first_seq == 4


def test_an_emptied_stream_goes_on_in_its_open_segment(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    append_rows(opened, [batch("x", "y")])
    store = store_of(opened)
    files, known = store.versions[-1]
    store.versions.append((files.slice(0, 0), known))
    append_rows(opened, [batch("z")])
    assert stored(opened) == [(1, 3, "z")]


def test_a_batch_of_a_writer_is_written_once(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    append_rows(opened, [batch("x")], BatchIdentity("loader", 5))
    for repeated in (5, 4):
        again = append_rows(opened, [batch("y")], BatchIdentity("loader", repeated))
        assert again == Appended(2, 1, 0, 0, 1, duplicate=True)
    append_rows(opened, [batch("z")], BatchIdentity("loader", 6))
    append_rows(opened, [batch("w")], BatchIdentity("another", 0))
    assert [payload for _, _, payload in stored(opened)] == ["x", "z", "w"]
    assert counters(opened).batches == {"loader": 6, "another": 0}


def test_an_empty_batch_of_a_writer_is_remembered(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    assert append_rows(opened, [], BatchIdentity("query", 0)).messages == 0
    assert append_rows(opened, [batch("x")], BatchIdentity("query", 0)).duplicate


def test_nothing_to_append_commits_nothing(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    assert append_rows(opened, [batch()]) == Appended(1, 0, 0, 0, 0)
    assert not store_of(opened).swaps


def test_a_lost_race_assigns_again_and_rewrites_the_staged_rows(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, segment_size=78)
    rival = replace(opened, root=str(tmp_path / "rival"))
    spent: Iterator[pa.Table] = iter([batch("a"), batch("b", "c")])
    meanwhile = store_of(opened).before_commit

    def write(payload: str) -> None:
        append_rows(rival, [batch(payload)])

    def leave_the_rival_alone() -> None:
        pass

    meanwhile += [
        lambda: write("r"),
        leave_the_rival_alone,
        lambda: write("s"),
        leave_the_rival_alone,
    ]
    done = append_rows(opened, spent, BatchIdentity("loader", 1))
    assert [(seq, payload) for _, seq, payload in stored(opened)] == [
        (1, "r"),
        (2, "s"),
        (3, "a"),
        (4, "b"),
        (5, "c"),
    ]
    assert (done.first_seq, done.last_seq, done.messages) == (3, 5, 3)
    assert store_of(opened).leftovers() == []


def test_a_lost_race_puts_messages_that_were_divided_by_deadline_into_their_order_again(
    tmp_path: Path,
) -> None:
    opened = opened_stream(tmp_path, layout="deadline", allow_msg_ttl=True, segment_size="256KiB")
    lives = [f"NATS/1.0\r\nNats-TTL: {10 ** (1 + n % 5)}\r\n\r\n".encode() for n in range(900)]
    raw = pa.table(
        {
            "subject": pa.array(["orders.a"] * 900),
            "headers": pa.array(lives, pa.binary()),
            "payload": pa.array([f"{n:01000}".encode() for n in range(900)], pa.binary()),
            "ts_ns": pa.array(range(900), pa.int64()),
        }
    )

    def rival() -> None:
        append_rows(replace(opened, root=str(tmp_path / "rival")), [batch("rival")])

    store_of(opened).before_commit.append(rival)
    append_rows(opened, [complete_rows(raw, "file")])
    assert [(seq, int(text)) for _, seq, text in stored(opened)[1:]] == [
        (n + 2, n) for n in range(900)
    ]
    assert store_of(opened).versions[-1][0].num_rows > 10
    assert store_of(opened).leftovers() == []


def test_rivals_that_always_come_first_end_in_busy_with_nothing_left(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)

    def refuse() -> None:
        raise ConflictError("a rival came first")

    store_of(opened).before_commit += [refuse] * 100
    with pytest.raises(BusyError, match="ORDERS: other writers committed first 20 times"):
        append_rows(opened, [batch("a")])
    assert stored(opened) == []
    assert store_of(opened).leftovers() == []


def test_a_source_that_fails_leaves_no_files(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, segment_size=1)

    def source() -> Iterator[pa.Table]:
        yield batch("a", "b")
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        append_rows(opened, source())
    assert store_of(opened).leftovers() == []
    assert append_rows(opened, [batch("c")]).first_seq == 1


def test_files_of_a_commit_in_doubt_stay(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)

    def fail() -> None:
        raise CommitUnknownError("the storage did not answer")

    store_of(opened).after_commit.append(fail)
    with pytest.raises(CommitUnknownError):
        append_rows(opened, [batch("a")])
    assert stored(opened) == [(1, 1, "a")]


def test_a_file_that_reads_back_otherwise_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = opened_stream(tmp_path)
    write = parquet.write_messages

    def write_less(location: str, batches: Iterator[pa.Table]) -> str:
        return write(location, (table.slice(0, table.num_rows - 1) for table in batches))

    monkeypatch.setattr(parquet, "write_messages", write_less)
    with pytest.raises(VerificationError, match=r"'messages': 1.*'messages': 2"):
        append_rows(opened, [batch("a", "b")])
    assert not store_of(opened).swaps
    assert store_of(opened).leftovers() == []


def test_statistics_of_the_commit_are_those_of_the_rows(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, segment_size=100)
    append_rows(opened, [batch("a", "bb", "ccc", ts_ns=5), batch("dddd", ts_ns=3)])
    files = store_of(opened).swaps[0].add
    rows = store_of(opened).rows()
    assert files["messages"].to_pylist() == [3, 1]
    assert pc.sum(files["bytes"]) == pc.sum(rows["size"])
    assert list(zip(files["min_seq"].to_pylist(), files["max_seq"].to_pylist(), strict=True)) == [
        (1, 3),
        (4, 4),
    ]
    assert files["segment"].to_pylist() == [1, 4]


def micro_batch(opened: OpenedStream, number: int, query: str | None, writer: str = "sink") -> str:
    """The result of a micro-batch: written, duplicate or refused."""
    try:
        done = append_rows(opened, [batch("x")], MicroBatch(writer, number, query=query))
    except RefusedError:
        return "refused"
    return "duplicate" if done.duplicate else "written"


def test_a_query_repeats_its_last_batch_and_no_other(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    for number in (0, 1, 2):
        assert micro_batch(opened, number, "a") == "written"
    assert micro_batch(opened, 2, "a") == "duplicate"
    assert [micro_batch(opened, number, "a") for number in (0, 1)] == ["refused"] * 2, "put back"
    begun_anew = [micro_batch(opened, number, "b") for number in (0, 2, 3)]
    assert begun_anew == ["refused"] * 3, "another checkpoint"
    assert micro_batch(opened, 0, "b", "other") == "written"
    assert micro_batch(opened, 0, "c", "deep/other") == "written"
    assert micro_batch(opened, 0, "b", "other") == "duplicate"
    assert micro_batch(opened, 3, "a") == "written"
    assert len(stored(opened)) == 6


def test_what_was_written_before_queries_were_known_goes_on(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    append_rows(opened, [batch("x")], BatchIdentity("sink", 7))
    assert micro_batch(opened, 0, "a") == "refused"
    assert micro_batch(opened, 7, "a") == "duplicate"
    assert micro_batch(opened, 8, "a") == "written"
    assert micro_batch(opened, 9, "b") == "refused"
    assert micro_batch(opened, 9, None) == "written", "nobody can tell"
    with pytest.raises(UsageError):
        BatchIdentity("retention/query/a/sink", 1)
