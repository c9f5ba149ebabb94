from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retention.apply import stage
from retention.context.context import OpenedStream
from retention.datafile.rewrite import RewriteResult, RewriteTask, copy_remaining
from retention.errors import BusyError, RefusedError, VerificationError
from retention.history.runs import History, history_of
from retention.ingest import recorded_commit
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.publish import publish
from retention.ingest.published import Published
from retention.planners import probe
from retention.stores.lease import lease
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with
from tests.support.plain_store import opened_stream, store_of

NOW = START + 100 * SECOND
SUB, ALL = {"Nats-Rollup": "sub"}, {"Nats-Rollup": "all"}


def line(subject: str, headers: dict[str, str] | None = None, data: str = "x") -> str:
    return json.dumps({"subject": f"orders.{subject}", "data": data, "headers": headers or {}})


def contents(opened: OpenedStream) -> list[tuple[int, str]]:
    rows = store_of(opened).rows()
    names = (subject.removeprefix("orders.") for subject in rows["subject"].to_pylist())
    return list(zip(rows["seq"].to_pylist(), names, strict=True))


def answers(published: Published) -> list[int]:
    return [ack.seq for ack in published.acks()]


def history(opened: OpenedStream) -> History:
    return history_of(opened.warehouse, opened.name)


@pytest.fixture
def orders(tmp_path: Path) -> OpenedStream:
    return opened_stream(tmp_path, NOW, allow_rollup_hdrs=True, segment_size="100")


def test_what_is_older_on_the_subject_goes_and_the_rest_stays(orders: OpenedStream) -> None:
    publish(orders, [line(subject) for subject in "abcab"])
    assert answers(publish(orders, [line("a"), line("b", SUB)])) == [6, 7]
    assert contents(orders) == [(1, "a"), (3, "c"), (4, "a"), (6, "a"), (7, "b")]
    assert store_of(orders).leftovers() == []


def test_everything_older_goes_without_a_look_at_a_data_file(
    orders: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(orders, [line(subject) for subject in "abcab"])
    monkeypatch.setattr(probe, "read_columns", lambda *_: pytest.fail("a data file was read"))
    publish(orders, [line("c"), line("d", ALL), line("e")])
    assert contents(orders) == [(7, "d"), (8, "e")]


def test_only_files_that_hold_the_subject_are_touched(orders: OpenedStream) -> None:
    publish(orders, [line("a")])
    publish(orders, [line("b"), line("c")])
    publish(orders, [line("b")])
    before = store_of(orders).versions[-1][0]["path"].to_pylist()
    publish(orders, [line("b", SUB)])
    swap = store_of(orders).swaps[-1]
    assert swap.remove["path"].to_pylist() == before[1:]
    assert swap.add["messages"].to_pylist() == [1, 1]


@pytest.mark.parametrize("seed", range(6))
def test_batches_leave_what_one_message_after_the_other_leaves(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    orders = opened_stream(tmp_path, NOW, allow_rollup_hdrs=True, segment_size="150")
    kept: list[tuple[int, str]] = []
    seq = removed = 0
    for _ in range(8):
        lines = []
        for _ in range(chance.randrange(1, 12)):
            subject, kind = chance.choice("abcdef"), chance.choice(["", "", "", "sub", "ALL"])
            kind = kind if chance.random() < 0.5 else ""
            seq += 1
            kept = [
                one for one in kept if kind != "ALL" and not (kind == "sub" and one[1] == subject)
            ]
            kept.append((seq, subject))
            lines.append(line(subject, {"Nats-Rollup": kind}))
        before = len(contents(orders)) if store_of(orders).exists() else 0
        publish(orders, lines)
        assert contents(orders) == kept
        stored = sum(1 for number, _ in kept if number > seq - len(lines))
        removed += before + stored - len(kept)
    outcomes = list(history(orders).outcomes())
    assert sum(outcome.by_rule["rollup"] for outcome in outcomes) == removed


def test_a_summary_counts_what_was_answered_and_what_went(orders: OpenedStream) -> None:
    publish(orders, [line("a"), line("b"), line("a")])
    published = publish(orders, [line("a"), line("a", SUB), line("c")])
    assert published.summary() == "3 messages stored as 4 to 6; 2 older ones rolled up"
    assert published.appended.messages == 2


def test_sequences_go_on_behind_messages_that_were_never_written(orders: OpenedStream) -> None:
    assert answers(publish(orders, [line("a"), line("a"), line("a", SUB)])) == [1, 2, 3]
    assert answers(publish(orders, [line("b")])) == [4]
    assert contents(orders) == [(3, "a"), (4, "b")]


def test_a_duplicate_rolls_nothing_up(orders: OpenedStream) -> None:
    publish(orders, [line("a"), line("b", {"Nats-Msg-Id": "one"}), line("b")])
    publish(orders, [line("b", {"Nats-Msg-Id": "one", **ALL})])
    assert contents(orders) == [(1, "a"), (2, "b"), (3, "b")]


def test_a_roll_up_counts_on_the_subject_under_which_it_is_stored(tmp_path: Path) -> None:
    transform = {"src": "orders.in.*", "dest": "orders.{{wildcard(1)}}"}
    orders = opened_stream(tmp_path, NOW, allow_rollup_hdrs=True, subject_transform=transform)
    publish(orders, [line("a"), line("b")])
    publish(orders, [line("in.a", SUB)])
    assert contents(orders) == [(2, "b"), (3, "a")]


@pytest.mark.parametrize("limits", [{}, {"deny_purge": True}])
def test_without_leave_to_roll_up_it_is_refused(tmp_path: Path, limits: dict[str, Any]) -> None:
    orders = opened_stream(tmp_path, NOW, **limits)
    publish(orders, [line("a")])
    with pytest.raises(RefusedError, match=r"server error 10111.*rollup not permitted"):
        publish(orders, [line("a"), line("a", SUB)])
    assert contents(orders) == [(1, "a")]


def test_what_is_rolled_up_makes_room_for_the_messages_behind_it(tmp_path: Path) -> None:
    orders = opened_stream(tmp_path, NOW, allow_rollup_hdrs=True, discard="new", max_msgs=4)
    publish(orders, [line("a"), line("a"), line("b")])
    assert answers(publish(orders, [line("a", SUB), line("c"), line("d")])) == [4, 5, 6]
    with pytest.raises(RefusedError, match="maximum messages exceeded"):
        publish(orders, [line("a", SUB)])


def test_expectations_see_what_a_roll_up_has_left(orders: OpenedStream) -> None:
    publish(orders, [line("a"), line("b")])
    nothing = {"Nats-Expected-Last-Subject-Sequence": "0"}
    assert answers(publish(orders, [line("c", ALL), line("a", nothing)])) == [3, 4]


def test_a_removal_is_on_record_with_its_rule_and_the_next_sequence(orders: OpenedStream) -> None:
    publish(orders, [line("a"), line("b"), line("a")])
    publish(orders, [line("a", SUB), line("c")])
    [record] = history(orders).outcomes()
    assert record.kind == "rollup"
    assert record.by_rule == {"rollup": 2}
    assert record.removed_bytes == 2 * (30 + len("orders.a") + 1)
    assert (record.status, record.as_of_ns) == ("done", NOW)
    assert history(orders).next_seq(0, 0) == 6
    assert store_of(orders).swaps[-1].metadata["run"] == record.run
    assert history(orders).last_as_of_ns() is None


def test_the_next_one_settles_a_removal_that_ended_behind_its_commit(orders: OpenedStream) -> None:
    publish(orders, [line("a"), line("b")])

    def die() -> None:
        raise KeyboardInterrupt

    store_of(orders).after_commit.append(die)
    with pytest.raises(KeyboardInterrupt):
        publish(orders, [line("a", SUB)])
    [run] = history(orders).unfinished()
    publish(orders, [line("b", SUB)])
    settled = history(orders).done(run)
    assert settled is not None
    assert (settled.status, settled.removed_messages) == ("done", 1)
    assert contents(orders) == [(3, "a"), (4, "b")]


def test_nothing_older_is_no_removal(orders: OpenedStream) -> None:
    publish(orders, [line("b")])
    publish(orders, [line("a"), line("a", SUB)])
    assert list(history(orders).outcomes()) == []
    assert history(orders).unfinished() == []


def test_a_batch_of_a_writer_is_rolled_up_once(orders: OpenedStream) -> None:
    identity = BatchIdentity("app", 1)
    publish(orders, [line("a"), line("b")])
    assert not publish(orders, [line("a", SUB)], identity).appended.duplicate
    publish(orders, [line("a")])
    assert publish(orders, [line("a", SUB)], identity).appended.duplicate
    assert contents(orders) == [(2, "b"), (3, "a"), (4, "a")]


def test_who_comes_first_is_rolled_up_as_well(orders: OpenedStream, tmp_path: Path) -> None:
    publish(orders, [line("a"), line("b")])
    rival = opened_stream(tmp_path / "rival", NOW)
    object.__setattr__(rival, "table", orders.table)

    def come_first() -> None:
        publish(rival, [line("a"), line("c")])

    store_of(orders).before_commit += [come_first, lambda: None]
    assert answers(publish(orders, [line("a", SUB)])) == [5]
    assert contents(orders) == [(2, "b"), (4, "c"), (5, "a")]
    assert store_of(orders).leftovers() == []
    assert [record.by_rule for record in history(orders).outcomes()] == [{"rollup": 2}]
    assert history(orders).unfinished() == []


def test_a_run_at_work_is_waited_for_and_then_told(
    orders: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(orders, [line("a")])
    monkeypatch.setattr(recorded_commit, "MAINTENANCE_WAIT_S", 0.01)
    with lease(orders.root, "maintenance", orders.clock):
        with pytest.raises(BusyError):
            publish(orders, [line("a", SUB)])
        publish(orders, [line("a")])
    assert contents(orders) == [(1, "a"), (2, "a")]


def test_a_copy_that_does_not_hold_the_rest_is_not_committed(
    orders: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(orders, [line("a"), line("b"), line("a")])

    def without_first(task: RewriteTask) -> RewriteResult:
        return copy_remaining(replace(task, removed=np.array([[1, 1]])))

    monkeypatch.setattr(stage, "rewrite_or_hide", without_first)
    with pytest.raises(VerificationError, match="nothing was committed"):
        publish(orders, [line("a", SUB)])
    assert contents(orders) == [(1, "a"), (2, "b"), (3, "a")]
    assert store_of(orders).leftovers() == []


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_undo_brings_back_what_was_rolled_up_and_keeps_what_was_published(
    tmp_path: Path, format_: str
) -> None:
    warehouse = warehouse_with(tmp_path, format_, NOW, allow_rollup_hdrs=True, max_age="60s")
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, even_segments(3, 10))
    before = held(warehouse)
    stream.publish([json.dumps({"subject": "s.1", "data": "new", "headers": SUB})])
    run = warehouse.history()[0]["run"]
    assert held(warehouse).num_rows == 21
    warehouse.apply(as_of=START + 65 * SECOND)
    warehouse.undo(warehouse.history()[0]["run"])
    assert warehouse.undo(run)["restored_messages"] == 10
    after = held(warehouse)
    assert after.slice(0, 30).equals(before)
    assert after["seq"].to_pylist() == list(range(1, 32))


def test_a_run_is_undone_under_a_later_roll_up_of_the_same_segments(tmp_path: Path) -> None:
    warehouse = warehouse_with(tmp_path, "parquet", NOW, allow_rollup_hdrs=True, max_age="60s")
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, even_segments(1, 10))
    warehouse.apply(as_of=START + 65 * SECOND)
    run = warehouse.history()[0]["run"]
    stream.publish([json.dumps({"subject": "s.1", "headers": SUB})])
    rolled = warehouse.history()[0]["run"]
    gone = set(range(1, 12)) - set(held(warehouse)["seq"].to_pylist())
    back = warehouse.undo(run)["restored_messages"]
    assert len(gone) > back > 0
    assert held(warehouse).num_rows == 11 - len(gone) + back
    warehouse.undo(rolled)
    assert held(warehouse)["seq"].to_pylist() == list(range(1, 12))
