"""Folding of logs into stored consumers: once, in pieces, and refused if the result is a guess."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from retention.api.stream import Stream
from retention.consumers.ack_fold import FoldInput, fold
from retention.consumers.state import new_state
from retention.errors import BusyError, RefusedError, UsageError
from retention.formats.ack import sources
from retention.formats.ack.log import digest_of_tail, tail_digest
from retention.formats.ack.sources import open_log
from retention.interest import ack_fold
from retention.interest.ack_fold import FoldedLog
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from tests.support.consumer_model import LAST_SEQ, Line, World, lines_of, worlds
from tests.support.laws import law_on_disk
from tests.support.sandboxes import lines, opened

BODIES = [None, b"+ACK", b"-NAK", b"+WPI", b"+TERM", b"+NXT", b"nonsense"]
"""Verbs by code."""


def reply(seq: int, consumer: str = "all", consumer_seq: int | None = None, count: int = 1) -> str:
    return f"$JS.ACK.ORDERS.{consumer}.{count}.{seq}.{consumer_seq or seq}.1700000000000000000.0"


def ack(seq: int, consumer: str = "all", body: str = "+ACK", **other: int) -> dict[str, str]:
    return {"subject": reply(seq, consumer, **other), "data": body}


def stream_in(folder: Path, *consumers: dict[str, Any]) -> Stream:
    """A stream of sixty messages, every third one paid, with its consumers."""
    config = {"name": "ORDERS", "subjects": ["orders.>"], "retention": "interest"}
    stream = opened(folder, config).new_stream("ORDERS")
    subjects = ("orders.new", "orders.new", "orders.paid")
    stream.publish([line for _ in range(20) for subject in subjects for line in lines(1, subject)])
    for consumer in consumers or ({"durable_name": "all", "ack_policy": "explicit"},):
        stream.consumers.add(consumer)
    return stream


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse for laws, which restore its consumers."""
    folder = tmp_path_factory.mktemp("stored")
    stream_in(folder)
    return folder


def written(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def record(stream: Stream, name: str = "all") -> ConsumerRecord:
    stored = ConsumerTable(stream.opened.root).read(name)
    assert stored is not None
    return stored


def floor(stream: Stream, name: str = "all") -> int:
    return record(stream, name).state.ack_floor.stream_seq


def test_a_log_that_grows_is_folded_from_where_it_was(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    lines = [ack(seq) for seq in range(1, 31)]
    [first] = stream.consumers.fold(written(tmp_path / "acks.jsonl", lines[:20]))
    assert (first.rows, first.before, first.consumers["all"].settling) == (20, 0, 20)
    assert floor(stream) == 20
    version = record(stream).version
    [again] = stream.consumers.fold(str(tmp_path / "acks.jsonl"))
    assert (again.before, again.consumers) == (20, {})
    assert record(stream).version == version
    [more] = stream.consumers.fold(written(tmp_path / "acks.jsonl", lines))
    assert (more.rows, more.before, more.consumers["all"].lines) == (30, 20, 10)
    assert floor(stream) == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda message: message[:19], "it has 19 lines, and 20 of it"),
        (lambda message: [ack(9), *message[1:]], "its first 20 lines are not those"),
        (lambda message: [*message[:19], ack(40), ack(41)], "its first 20 lines are not those"),
        (lambda message: [ack(59), *message], "its first 20 lines are not those"),
    ],
)
def test_a_log_that_is_not_what_it_was_is_refused(
    tmp_path: Path, change: Callable[[list[Any]], list[Any]], message: str
) -> None:
    stream = stream_in(tmp_path)
    whole = [ack(seq) for seq in range(1, 21)]
    stream.consumers.fold(written(tmp_path / "acks.jsonl", whole))
    before = record(stream)
    with pytest.raises(RefusedError, match=message):
        stream.consumers.fold(written(tmp_path / "acks.jsonl", change(whole)))
    assert record(stream) == before


def test_a_log_is_the_same_wherever_it_lies_if_it_is_called_so(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    lines = [ack(seq) for seq in range(1, 31)]
    stream.consumers.fold(written(tmp_path / "a.jsonl", lines[:20]), name="acks")
    parquet.write_table(pa.Table.from_pylist(lines), tmp_path / "b.parquet")
    [more] = stream.consumers.fold(str(tmp_path / "b.parquet"), name="acks")
    assert (more.log, more.before, more.rows) == ("acks", 20, 30)
    assert record(stream).folded["acks"]["rows"] == 30
    with pytest.raises(UsageError, match="names one log"):
        stream.consumers.fold("a", "b", name="acks")
    with pytest.raises(UsageError, match="same name"):
        stream.consumers.fold(str(tmp_path / "a.jsonl"), str(tmp_path / "a.jsonl"))


def test_a_delta_table_is_a_log_in_the_order_of_its_files(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    for begin in (1, 11, 21):
        rows = pa.Table.from_pylist([ack(seq) for seq in range(begin, begin + 10)])
        write_deltalake(tmp_path / "log", rows, mode="append")
        [done] = stream.consumers.fold(str(tmp_path / "log"))
        assert (done.before, floor(stream)) == (begin - 1, begin + 9)


def test_acks_ahead_of_the_stream_change_nothing(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    before = record(stream)
    log = written(tmp_path / "acks.jsonl", [ack(1), ack(61, "other"), ack(62), ack(63)])
    with pytest.raises(
        RefusedError, match=r"line 3 of .* about message 62, .* last one here is 60"
    ):
        stream.consumers.fold(log)
    assert record(stream) == before
    stream.publish(lines(3))
    [done] = stream.consumers.fold(log)
    assert (done.rows, done.unknown_consumers) == (4, {"other": 1})
    assert record(stream).state.delivered.stream_seq == 63


def test_what_cannot_be_folded_is_counted(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    lines = [
        ack(1),
        ack(2, "gone"),
        {"subject": reply(2).replace("ORDERS", "OTHER")},
        {"subject": "$JS.ACK.ORDERS.all"},
        ack(3, consumer_seq=1),
        ack(0, consumer_seq=9),
        ack(8, consumer_seq=4),
        ack(2, body="what"),
    ]
    [done] = stream.consumers.fold(written(tmp_path / "acks.jsonl", lines))
    assert done.unknown_consumers == {"gone": 1}
    assert done.other_streams == {"OTHER": 1}
    assert [(fault.count, fault.example) for fault in done.malformed] == [(1, "$JS.ACK.ORDERS.all")]
    report = done.consumers["all"]
    assert (report.beyond, report.undelivered, report.unknown_bodies) == (1, 1, 1)
    assert report.missing.to_pylist() == [{"first": 3, "last": 3, "after": 2, "before": 8}]
    assert record(stream).state.unseen == report.missing


def test_of_a_gap_only_what_the_filters_match_is_held(tmp_path: Path) -> None:
    paid = {"durable_name": "paid", "ack_policy": "explicit", "filter_subject": "orders.paid"}
    stream = stream_in(tmp_path, paid)
    lines = [ack(seq, "paid", consumer_seq=seq // 3) for seq in (3, 12, 15)]
    stream.consumers.fold(written(tmp_path / "acks.jsonl", lines))
    assert record(stream, "paid").state.pending["seq"].to_pylist() == [6, 9]
    lines += [ack(seq, "paid", consumer_seq=seq // 3) for seq in (9, 6)]
    stream.consumers.fold(written(tmp_path / "acks.jsonl", lines))
    assert floor(stream, "paid") == 15
    assert record(stream, "paid").state.unseen.num_rows == 0


def test_a_consumer_that_came_later_gets_all_and_one_of_the_same_name_what_is_new(
    tmp_path: Path,
) -> None:
    stream = stream_in(tmp_path)
    lines = [line for seq in range(1, 11) for line in (ack(seq), ack(seq, "late"))]
    log = written(tmp_path / "acks.jsonl", lines)
    [first] = stream.consumers.fold(log)
    assert first.unknown_consumers == {"late": 10}
    late = {"durable_name": "late", "ack_policy": "explicit"}
    stream.consumers.add(late)
    [done] = stream.consumers.fold(log)
    assert (done.before, list(done.consumers), floor(stream, "late")) == (0, ["late"], 10)
    assert done.unknown_consumers == {}
    stream.consumers.remove("late")
    stream.consumers.add(late)
    [again] = stream.consumers.fold(log)
    assert (again.before, floor(stream, "late")) == (20, 0)


def test_listed_consumers_are_there_before_the_first_line(tmp_path: Path) -> None:
    config = {"name": "ORDERS", "subjects": ["orders.>"], "retention": "interest"}
    stream = opened(tmp_path, config).new_stream("ORDERS")
    stream.publish(lines(3))
    listed = [{"durable_name": "all", "ack_policy": "explicit"}]
    stream = opened(tmp_path, config | {"consumers": listed}).stream("ORDERS")
    stream.consumers.fold(written(tmp_path / "acks.jsonl", [ack(1), ack(2)]))
    assert floor(stream) == 2


def test_a_change_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_in(tmp_path)
    log = written(tmp_path / "acks.jsonl", [ack(1), ack(2)])
    real = digest_of_tail

    def meanwhile(rival: Callable[[ConsumerRecord], ConsumerRecord]) -> None:
        def change(current: ConsumerRecord | None) -> ConsumerRecord:
            assert current is not None
            return rival(current)

        def digest(rows: int, tail: pa.Table) -> str:
            ConsumerTable(stream.opened.root).update("all", change)
            return real(rows, tail)

        monkeypatch.setattr(ack_fold, "digest_of_tail", digest)

    meanwhile(lambda current: replace(current, state=new_state(5)))
    with pytest.raises(BusyError, match="consumer all was changed while"):
        stream.consumers.fold(log)
    assert record(stream).state == new_state(5)
    monkeypatch.setattr(ack_fold, "digest_of_tail", real)
    stream.consumers.fold(log)
    done = record(stream)
    stream.consumers.fold(written(tmp_path / "acks.jsonl", [ack(1), ack(2)]))
    assert record(stream) == done


@pytest.mark.parametrize("folds", [[1_200], [5], [1_200, 1_500], [5, 1_500]])
def test_the_last_lines_are_remembered_whether_read_now_or_before(
    tmp_path: Path, folds: list[int]
) -> None:
    stream = stream_in(tmp_path)
    for rows in folds:
        log = written(tmp_path / "acks.jsonl", [ack(1 + row % 2) for row in range(rows)])
        stream.consumers.fold(log)
    [place] = record(stream).folded.values()
    assert place == {"rows": folds[-1], "tail": tail_digest(open_log(log), folds[-1])}


def test_a_stream_without_consumers_counts_what_is_said_of_them(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    stream.consumers.remove("all")
    [done] = stream.consumers.fold(written(tmp_path / "acks.jsonl", [ack(1), ack(99)]))
    assert done.unknown_consumers == {"all": 2}


def as_log(log: tuple[Line, ...]) -> list[dict[str, Any]]:
    lines = []
    for line in log:
        name = reply(line.seq, consumer_seq=line.consumer_seq, count=line.deliveries)
        body = BODIES[line.verb]
        lines.append({"reply": name} if body is None else {"subject": name, "data": body.decode()})
    return lines


@law_on_disk
@given(world=worlds(forged=False), bytes_=st.integers(60, 900), rows=st.integers(1, 30))
def test_a_log_in_any_pieces_and_runs_is_folded_as_in_one(
    stored: Path, world: World, bytes_: int, rows: int
) -> None:
    stream = opened(stored).stream("ORDERS")
    assert LAST_SEQ + 3 <= 60
    start = new_state(world.consumer.start)
    policy = world.consumer.policy
    fresh = ConsumerRecord("all", {"durable_name": "all", "ack_policy": policy}, start)
    version = record(stream).version
    ConsumerTable(stream.opened.root).update("all", lambda _: fresh)
    assert record(stream).version >= version
    lines = as_log(world.log)
    done: list[FoldedLog] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PART_BYTES", bytes_)
        patch.setattr(ack_fold, "PIECE_ROWS", rows)
        for cut in [*world.cuts, len(lines)]:
            done += stream.consumers.fold(written(stored / "acks.jsonl", lines[:cut]))
    expected, report = fold(FoldInput(policy, start), lines_of(world.log), 60)
    state = record(stream).state
    numbers = ["seq", "consumer_seq"]
    assert (state.delivered, state.ack_floor) == (expected.delivered, expected.ack_floor)
    assert state.pending.select(numbers) == expected.pending.select(numbers)
    assert (state.redelivered, state.unseen) == (expected.redelivered, expected.unseen)
    reports = [run.consumers["all"] for run in done if "all" in run.consumers]
    assert sum(part.lines for part in reports) == report.lines
    assert sum(part.settling for part in reports) == report.settling
