"""Requested removals on real stores: the server's table, their cost, refusals, and undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention.api.stream import Stream
from retention.api.warehouse import Warehouse
from retention.apply.requested import remove_now
from retention.core.read_count import ReadCount
from retention.engines.select import Engines
from retention.errors import BusyError, RefusedError, StalePlanError, UsageError
from retention.planners import requests
from retention.rules.requests import Delete, Purge, Request
from retention.storage.crash_points import Step, watched_by
from retention.stores.lease import lease
from tests.support.laying import SECOND, START, File, Laid, held, lay, warehouse_with

NOW = START + 100 * SECOND
FORMATS = pytest.mark.parametrize("format_", ["delta", "parquet"])
ALL = list(range(1, 10))
NOT_C = [1, 2, 4, 5, 7, 8]

TABLE: list[tuple[Request, list[int], int]] = [
    (Purge(), [], 9),
    (Purge(seq=5), [5, 6, 7, 8, 9], 9),
    (Purge(seq=1), ALL, 9),
    (Purge("s.c", seq=1), ALL, 9),
    (Purge(seq=10), [], 9),
    (Purge(seq=15), [], 14),
    (Purge(keep=4), [6, 7, 8, 9], 9),
    (Purge(keep=9), ALL, 9),
    (Purge(keep=20), ALL, 9),
    (Purge("s.c"), NOT_C, 9),
    (Purge("s.c", keep=1), [*NOT_C, 9], 9),
    (Purge("s.c", seq=7), [*NOT_C, 9], 9),
    (Purge("s.c", seq=100), NOT_C, 9),
    (Purge("s.*", seq=15), [], 9),
    (Purge("nope"), ALL, 9),
    (Delete((3, 5)), [1, 2, 4, 6, 7, 8, 9], 9),
]
"""A request on `abcabcabc`, the kept messages, and the last sequence afterwards (JetStream server 2.15.1)."""


LOG = [Laid(seq, f"s.{'cab'[seq % 3]}", START + seq * SECOND) for seq in ALL]
IN_ORDER = [File(1, LOG[:3]), File(1, LOG[3:5]), File(6, LOG[5:])]
INTERLEAVED = [File(1, LOG[0:5:2]), File(1, LOG[1:5:2]), File(6, LOG[5:])]


def nine(
    folder: Path, format_: str, files: Sequence[File] = IN_ORDER, **settings: Any
) -> Warehouse:
    """The log `abcabcabc`."""
    streams = warehouse_with(folder, format_, NOW, **settings)
    lay(streams.stream("ORDERS").opened, files)
    return streams


def removed(streams: Warehouse, request: Request) -> Any:
    with Engines("local") as engines:
        return remove_now(streams.stream("ORDERS").opened, request, engines)


def seqs(streams: Warehouse) -> list[int]:
    return [
        seq for table in streams.stream("ORDERS").messages() for seq in table["seq"].to_pylist()
    ]


@FORMATS
@pytest.mark.parametrize(("request_", "left", "last"), TABLE)
def test_a_removal_leaves_what_the_server_leaves_and_can_be_undone(
    tmp_path: Path, format_: str, request_: Request, left: list[int], last: int
) -> None:
    streams = nine(tmp_path, format_)
    before = held(streams)
    report = removed(streams, request_)
    gone = len(ALL) - len(left)
    assert seqs(streams) == left
    assert report.removed_messages == gone
    assert report.by_rule == ({request_.rule: gone} if gone else {})
    state = streams.stream("ORDERS").state()
    assert (state.messages, state.last_seq) == (len(left), last)
    assert state.first_seq == (left[0] if left else last + 1)
    (newest, *_) = streams.history()
    assert (newest["kind"], newest["status"], newest["run"]) == (request_.rule, "done", report.run)
    if gone:
        assert streams.undo(report.run)["restored_messages"] == gone
        assert held(streams).equals(before)
    else:
        assert report.version_after == report.version_before
    assert streams.stream("ORDERS").state().last_seq == last


@pytest.mark.parametrize(("request_", "left", "last"), TABLE[:2] + TABLE[9:12] + TABLE[-1:])
def test_files_of_which_the_sequences_interleave_lose_the_same(
    tmp_path: Path, request_: Request, left: list[int], last: int
) -> None:
    streams = nine(tmp_path, "parquet", INTERLEAVED)
    removed(streams, request_)
    assert seqs(streams) == left
    assert streams.stream("ORDERS").state().last_seq == last


@FORMATS
def test_the_next_message_gets_the_sequence_that_a_purge_moved_to(
    tmp_path: Path, format_: str
) -> None:
    streams = nine(tmp_path, format_)
    removed(streams, Purge(seq=15))
    again = removed(streams, Purge(seq=15))
    assert again.version_after == again.version_before
    stored = streams.stream("ORDERS").publish([b'{"subject": "s.a", "data": "x"}'])
    assert stored.appended.first_seq == 15
    assert seqs(streams) == [15]


@FORMATS
def test_a_stream_that_never_held_anything_begins_where_a_purge_says(
    tmp_path: Path, format_: str
) -> None:
    streams = warehouse_with(tmp_path, format_, NOW)
    assert removed(streams, Purge()).removed_messages == 0
    assert not streams.stream("ORDERS").opened.store.exists()
    removed(streams, Purge(seq=15))
    state = streams.stream("ORDERS").state()
    assert (state.first_seq, state.last_seq) == (15, 14)
    streams.stream("ORDERS").publish([b'{"subject": "s.a", "data": "x"}'])
    assert seqs(streams) == [15]


def test_a_purge_without_a_filter_reads_rows_only_where_its_cut_falls(tmp_path: Path) -> None:
    orders = nine(tmp_path, "delta").stream("ORDERS")
    assert orders.purge().plan.header.read == ReadCount()
    assert orders.purge(seq=6).plan.header.read == ReadCount()
    assert orders.purge(keep=2).plan.header.read.files == 1
    assert orders.purge(seq=3).plan.header.read.files == 1


def test_a_purge_with_a_filter_reads_only_files_that_hold_some(tmp_path: Path) -> None:
    streams = warehouse_with(tmp_path, "delta", NOW)
    log = [[Laid(1, "a"), Laid(2, "b")], [Laid(3, "b")], [Laid(4, "a")], [Laid(5, "c")]]
    lay(streams.stream("ORDERS").opened, [File(m[0].seq, m) for m in log])
    plan = streams.stream("ORDERS").purge("a").plan
    assert plan.header.read.files == 1
    assert (
        plan.header.segments.dropped,
        plan.header.segments.rewritten,
        plan.header.segments.kept,
    ) == (1, 1, 2)


def test_digests_are_read_some_files_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = nine(tmp_path, "parquet")
    whole = streams.stream("ORDERS").purge("s.c").plan
    monkeypatch.setattr(requests, "MESSAGES_AT_ONCE", 2)
    assert streams.stream("ORDERS").purge("s.c").plan.plan_id == whole.plan_id


def test_segments_that_rules_drop_only_whole_are_purged_row_by_row(tmp_path: Path) -> None:
    streams = nine(tmp_path, "delta", whole_segments=True, max_msgs=100)
    removed(streams, Purge("s.c"))
    assert seqs(streams) == NOT_C


@pytest.mark.parametrize(
    ("settings", "asked", "code"),
    [
        ({"sealed": True}, Purge(), 10109),
        ({"sealed": True}, Delete((1,)), 10109),
        ({"deny_purge": True}, Purge("nope"), 10110),
        ({"deny_delete": True}, Delete((100,)), 10057),
    ],
)
def test_a_protected_stream_refuses_with_the_servers_code(
    tmp_path: Path, settings: dict[str, Any], asked: Request, code: int
) -> None:
    streams = nine(tmp_path, "parquet", **settings)
    with pytest.raises(RefusedError, match=f"error code {code}"):
        removed(streams, asked)
    assert seqs(streams) == ALL
    assert not streams.history()


def test_a_stream_whose_consumers_need_everything_can_be_purged(tmp_path: Path) -> None:
    streams = nine(tmp_path, "parquet", retention="interest")
    removed(streams, Purge("s.c"))
    assert seqs(streams) == NOT_C


def test_each_protection_is_about_its_own_kind_of_removal(tmp_path: Path) -> None:
    removed(nine(tmp_path / "a", "parquet", deny_purge=True), Delete((1,)))
    removed(nine(tmp_path / "b", "parquet", deny_delete=True), Purge())


@pytest.mark.parametrize(
    ("storage", "asked", "said"),
    [
        (
            "file",
            (2, 3),
            "no message 2, nor 1 more of those named .no message found, error code 10057",
        ),
        ("file", (7,), "sequence 7 not found, error code 10043"),
        ("file", (4, 10), "stream store EOF, error code 10057"),
        ("file", (0,), "no message found, error code 10057"),
        ("memory", (2,), "sequence 2 not found, error code 10043"),
        ("memory", (10,), "sequence 10 not found, error code 10043"),
    ],
)
def test_a_message_that_is_not_there_cannot_be_deleted(
    tmp_path: Path, storage: str, asked: tuple[int, ...], said: str
) -> None:
    streams = warehouse_with(tmp_path, "parquet", NOW, storage=storage)
    lay(streams.stream("ORDERS").opened, [File(4, [Laid(4), Laid(5)]), File(8, [Laid(8), Laid(9)])])
    with pytest.raises(UsageError, match=said):
        removed(streams, Delete(asked))
    assert seqs(streams) == [4, 5, 8, 9]


def test_nothing_can_be_deleted_from_a_stream_without_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stream store EOF, error code 10057"):
        removed(warehouse_with(tmp_path, "parquet", NOW), Delete((1,)))


@pytest.fixture
def orders(tmp_path: Path) -> Stream:
    return nine(tmp_path, "parquet").stream("ORDERS")


def test_a_planned_purge_explains_every_message(orders: Stream) -> None:
    plan = orders.purge("s.c", keep=1)
    assert plan.explain(3).goes
    assert plan.explain(3).sentence == (
        "ORDERS 3 (s.c) is removed: purge of s.c, all but the newest 1."
    )
    assert "its subject does not match s.c" in plan.explain(4).sentence
    assert "one of the newest 1" in plan.explain(9).sentence
    assert "not below sequence 5" in orders.purge(seq=5).explain(5).sentence
    assert orders.delete(5).explain(5).goes
    assert "not named" in orders.delete(5).explain(6).sentence
    goes = [seq for seq in ALL if plan.explain(seq).goes]
    plan.apply()
    assert [seq for table in orders.messages() for seq in table["seq"].to_pylist()] == sorted(
        set(ALL) - set(goes)
    )


def test_a_planned_purge_shows_what_goes(orders: Stream) -> None:
    shown = repr(orders.purge("s.c", seq=7))
    assert "2 messages" in shown
    assert ": purge of s.c, below sequence 7" in shown
    assert "purge of s.c" in orders.purge("s.c")._repr_html_()
    assert repr(orders.purge("nope.>")) == (
        "ORDERS: nothing to remove: purge of nope.>: no message matches"
    )
    assert "the next message gets sequence 15" in repr(orders.purge(seq=15))


def test_a_plan_is_carried_out_unchanged_or_not_at_all(orders: Stream, tmp_path: Path) -> None:
    plan, other = orders.purge("s.c"), orders.delete(1)
    other.apply()
    with pytest.raises(StalePlanError, match="plan again"):
        plan.apply()
    moving = orders.purge(seq=15)
    orders.publish([b'{"subject": "s.a", "data": "x"}'])
    with pytest.raises(StalePlanError):
        moving.apply()


def test_a_saved_purge_is_applied_from_its_file(orders: Stream, tmp_path: Path) -> None:
    from retention.plan.planfile import load_plans

    plan = orders.purge("s.c", keep=1)
    plan.save(tmp_path / "plan.json")
    (loaded,) = load_plans(str(tmp_path / "plan.json"))
    assert loaded.plan_id == plan.plan.plan_id
    assert loaded.header.request == Purge("s.c", keep=1)
    assert plan.plan.plan_id != orders.purge("s.c", keep=2).plan.plan_id


def test_a_purge_that_was_planned_before_the_stream_was_protected_is_refused(
    tmp_path: Path,
) -> None:
    plan = nine(tmp_path, "parquet").stream("ORDERS").purge().plan
    protected = warehouse_with(tmp_path, "parquet", NOW, deny_purge=True)
    (outcome,) = protected.apply_plans([plan])
    assert isinstance(outcome.error, RefusedError)


def test_a_removal_moves_no_instant_of_the_rules(tmp_path: Path) -> None:
    streams = nine(tmp_path, "parquet", max_age="1h")
    removed(streams, Purge("s.c"))
    (outcome,) = streams.apply(as_of=START)
    assert outcome.error is None


def test_only_one_run_removes_at_a_time(tmp_path: Path) -> None:
    streams = nine(tmp_path, "parquet")
    with (
        lease(streams.stream("ORDERS").opened.root, "maintenance", lambda: NOW),
        pytest.raises(BusyError),
    ):
        removed(streams, Purge())


SECRET = b"the secret of message 3"


def with_secret(folder: Path, format_: str = "parquet") -> Warehouse:
    """Message 3 has a payload that can be found in any file."""
    log = [replace(one, payload=SECRET if one.seq == 3 else b"x") for one in LOG]
    return nine(folder, format_, [File(1, log[:5]), File(6, log[5:])])


def holding(folder: Path, seq: int) -> list[Path]:
    """All files on the disk that contain a message."""
    found = [path for path in folder.rglob("*.parquet") if "subjects" not in path.parts]
    return [path for path in found if seq in pq.ParquetFile(path).read(["seq"])["seq"].to_pylist()]


def test_an_erased_message_is_in_no_file_although_an_earlier_run_left_one(tmp_path: Path) -> None:
    streams = with_secret(tmp_path)
    removed(streams, Delete((1,)))
    assert len(holding(tmp_path, 3)) == 2
    report = streams.stream("ORDERS").erase(seqs=3, reason="asked for").apply()
    assert holding(tmp_path, 3) == []
    assert len(list((tmp_path / "streams").rglob("subjects/**/*.parquet"))) == 2
    assert seqs(streams) == [2, 4, 5, 6, 7, 8, 9]
    assert report.run is not None
    with pytest.raises(UsageError, match="cannot be undone"):
        streams.undo(report.run)


def test_erasing_leaves_the_grace_of_other_messages_alone(tmp_path: Path) -> None:
    streams = with_secret(tmp_path)
    other = removed(streams, Delete((7,)))
    streams.stream("ORDERS").delete(3, erase=True).apply()
    assert len(holding(tmp_path, 7)) == 1
    assert streams.undo(other.run)["restored_messages"] == 1


def test_a_delete_without_erasure_keeps_the_file_for_its_undo(tmp_path: Path) -> None:
    removed(with_secret(tmp_path), Delete((3,)))
    assert len(holding(tmp_path, 3)) == 1


def test_a_killed_erasure_is_finished_by_the_next_run(tmp_path: Path) -> None:
    streams = with_secret(tmp_path)

    def killed(step: Step) -> None:
        if step == Step.MOVES_NOTED and len(streams_left(tmp_path)) > 1:
            raise KeyboardInterrupt

    with watched_by(killed), pytest.raises(KeyboardInterrupt):
        streams.stream("ORDERS").erase(seqs=3, reason="asked for").apply()
    assert len(holding(tmp_path, 3)) == 1
    removed(streams, Purge("nope"))
    assert holding(tmp_path, 3) == []
    (erased,) = [record for record in streams.history() if record["kind"] == "erase"]
    assert (erased["status"], erased["settled"]) == ("done", True)


def streams_left(folder: Path) -> list[Path]:
    """Data files in the trash, and one more."""
    return [folder, *(folder / "streams" / "ORDERS" / "_retention" / "trash").rglob("*.parquet")]
