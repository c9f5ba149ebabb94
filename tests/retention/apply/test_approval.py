"""An approval is used once, by the removing commit: an earlier failure does not use it, and one of two runs wins."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.apply import execute, run, undo
from retention.apply.approval import Approved
from retention.apply.guards import Guards
from retention.apply.keep_ids import keep_ids_of
from retention.apply.run import apply_now
from retention.engines.select import Engines
from retention.errors import RefusedError, StalePlanError
from retention.history.kinds import Applied
from retention.history.report import RunReport
from retention.history.runs import history_of
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with
from tests.support.run_records import run_record
from tests.support.topics import NAME, World, line

NOW = START + 100 * SECOND
DIGEST = "ab" * 32
LOCAL = Engines("local")


@pytest.fixture(params=["delta", "parquet"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
    """Forty messages, with an approval to remove ten."""
    stream = warehouse_with(tmp_path, request.param, NOW, max_msgs=30, approve=True).stream(
        "ORDERS"
    )
    lay(stream.opened, even_segments(4, 10))
    return stream


def approved(stream: Stream, digest: str = DIGEST) -> RunReport:
    ceiling = Approved(10, 10**6, {"max_msgs": 10}, digest)
    return apply_now(stream.opened, NOW, LOCAL, Guards(approved={"ORDERS": ceiling}))


def test_the_run_that_spends_an_approval_has_it_on_record(stream: Stream) -> None:
    report = approved(stream)
    record = history_of(stream.opened.warehouse, "ORDERS").done(report.run)
    assert isinstance(record, Applied)
    assert record.as_json()["approval"] == {
        "digest": DIGEST,
        "stream": "ORDERS",
        "run": report.run,
    }
    again = approved(stream)
    assert (again.spent_by, again.run, again.removed_messages) == (report.run, report.run, 0)
    assert len(stream.history()) == 1


def test_an_approval_whose_run_was_undone_is_spent(stream: Stream) -> None:
    report = approved(stream)
    undone = undo.undo_run(stream.opened, report.run)
    sentence = rf"spent by run {report.run}, which run {undone.run} undid; nothing was removed"
    with pytest.raises(RefusedError, match=sentence):
        approved(stream)
    assert stream.state().messages == 40
    assert approved(stream, "cd" * 32).removed_messages == 10


def test_a_failure_before_the_commit_spends_nothing(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(type(stream.opened.store), "commit", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            approved(stream)
    assert approved(stream).removed_messages == 10


def test_a_run_that_was_killed_after_its_commit_has_spent_it(stream: Stream) -> None:
    spent = approved(stream).run
    history = history_of(stream.opened.warehouse, "ORDERS")
    Path(history.done_location(spent)).unlink()
    again = approved(stream)
    assert (again.spent_by, again.removed_messages) == (spent, 0)
    undo.undo_run(stream.opened, spent)
    with pytest.raises(RefusedError, match="undid"):
        approved(stream)


def test_of_two_at_once_one_wins(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other run has lost its lease; it finds the table unchanged, because the first run's removal was undone."""
    monkeypatch.setattr(run, "removing", lambda _: nullcontext())
    monkeypatch.setattr(undo, "maintaining", lambda _: nullcontext())

    def behind_the_look(*given: Any) -> Any:
        monkeypatch.setattr(execute, "keep_ids_of", keep_ids_of)
        undo.undo_run(stream.opened, approved(stream).run)
        return keep_ids_of(*given)

    monkeypatch.setattr(execute, "keep_ids_of", behind_the_look)
    with pytest.raises(StalePlanError, match="another run"):
        approved(stream)
    assert stream.state().messages == 40
    with pytest.raises(RefusedError, match="undid"):
        approved(stream)


def test_a_run_under_way_has_it(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "settle_interrupted", lambda *_: None)
    history = history_of(stream.opened.warehouse, "ORDERS")
    rival = history.name_run(NOW)
    spent = {"digest": DIGEST, "stream": "ORDERS", "run": rival}
    history.begin(run_record(rival, as_of_ns=NOW, approval=spent))
    with pytest.raises(StalePlanError, match=f"run {rival} is spending the approved report"):
        approved(stream)


def test_an_approval_of_an_unknown_run_is_not_given_again(stream: Stream) -> None:
    history = history_of(stream.opened.warehouse, "ORDERS")
    killed = history.name_run(NOW)
    spent = {"digest": DIGEST, "stream": "ORDERS", "run": killed}
    history.finish(run_record(killed, as_of_ns=NOW, status="unknown", approval=spent))
    with pytest.raises(RefusedError, match=f"may have been spent by run {killed}"):
        approved(stream)


def test_a_topics_approval_is_spent_once(tmp_path: Path) -> None:
    hour = 3_600 * SECOND
    world = World(tmp_path, "delta", {"message_expiry": "1h", "roll_after": "1h", "approve": True})
    world.topic.publish([line("a", partition=0), line("b", partition=1)])
    world.clock.now_ns += 2 * hour
    size = world.topic.plan().plan.removed_bytes

    def passed(digest: str, bytes_: int) -> RunReport:
        guards = Guards(approved={NAME: Approved(2, bytes_, {"message_expiry": 2}, digest)})
        return apply_now(world.topic.opened, world.clock.now_ns, LOCAL, guards)

    with pytest.raises(RefusedError, match=rf"{size:,} instead of {size - 1:,} bytes"):
        passed(DIGEST, size - 1)
    report = passed(DIGEST, size)
    assert report.removed_messages == 2
    assert passed(DIGEST, size).spent_by == report.run
    world.warehouse.undo(report.run)
    with pytest.raises(RefusedError, match=f"spent by run {report.run}"):
        passed(DIGEST, size)
    assert passed("cd" * 32, size).removed_messages == 2
