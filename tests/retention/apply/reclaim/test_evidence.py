"""Removals of a run are reported after reclaim as before, for every kind of run and for records of earlier versions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.reclaim.run import reclaim_now
from retention.context.run_files import undo_location
from retention.core.units import HOUR
from retention.errors import DamagedError, MissingMessageError
from retention.evidence.months import RemovalEvidence, evidence_directory, month_files
from retention.history.runs import history_of
from retention.plan.explanation import Explanation
from retention.storage import files
from retention.storage.crash_points import Step
from retention.stores import storage_clock
from tests.support.kills import killed_at
from tests.support.laying import even_segments, lay
from tests.support.reclaiming import TICK_S, again, emptied, later, real_warehouse, run_pass
from tests.support.topics import line

pytestmark = pytest.mark.parametrize("format_", ["delta", "parquet"])


def opened_at(folder: Path) -> Warehouse:
    return open_warehouse(folder / "retention.yaml", engine="local")


def explained(folder: Path, seq: int) -> Explanation:
    return opened_at(folder).stream("ORDERS").explain(seq)


def cause(told: Explanation) -> tuple[str, str | None, dict[str, Any]]:
    """An explanation's run and reason of a removal, without details only known from the file."""
    sentence = told.sentence.partition("; ")[0].replace(f" ({told.subject})", "")
    removed = dict(told.removed or {})
    removed.pop("recovery")
    return sentence, told.rule, removed


def losses(folder: Path, run: str) -> list[dict[str, Any]]:
    return [vars(loss) for loss in opened_at(folder).run(run).segments()]


def laid(folder: Path, format_: str, **settings: Any) -> Warehouse:
    """Four segments of ten messages on s.0, s.1 and s.2 in turn."""
    warehouse = real_warehouse(folder, format_, **settings)
    lay(warehouse.stream("ORDERS").opened, even_segments(4, 10))
    return warehouse


def reclaimed(folder: Path) -> str | None:
    """Reclaim a moment from now; returns its run."""
    time.sleep(TICK_S)
    return reclaim_now(again(folder)).run


def test_a_pass_is_told_as_before(tmp_path: Path, format_: str) -> None:
    emptied(tmp_path, format_)
    run = opened_at(tmp_path).history()[0]["run"]
    before = {seq: cause(explained(tmp_path, seq)) for seq in (3, 23)}
    lost = losses(tmp_path, run)
    reclaim = reclaimed(tmp_path)
    assert {seq: cause(explained(tmp_path, seq)) for seq in (3, 23)} == before
    assert losses(tmp_path, run) == lost
    told = explained(tmp_path, 3)
    assert (
        f"undo can no longer restore it: reclaim {reclaim} deleted the last of its files at 20"
        in (told.sentence)
    )
    assert "its subject and its time are not recorded: its file is deleted" in (told.arithmetic)
    assert (told.removed or {})["recovery"]["reclaimed_by"] == reclaim
    messages = list(opened_at(tmp_path).run(run).messages())
    assert sum(message["messages"] for message in messages) == 25


def holed(folder: Path, format_: str) -> tuple[str, str]:
    """The runs that removed 5 and 17, and then all messages: files with these gaps are removed completely."""
    orders = laid(folder, format_).stream("ORDERS")
    return orders.delete(5, 17).apply().run, orders.purge().apply().run


def test_a_file_with_holes_is_told_message_by_message(tmp_path: Path, format_: str) -> None:
    first, second = holed(tmp_path, format_)
    before = {seq: cause(explained(tmp_path, seq)) for seq in (4, 5, 6, 17, 18)}
    assert all(told[2]["certain"] for told in before.values())
    reclaimed(tmp_path)
    assert {seq: cause(explained(tmp_path, seq)) for seq in before} == before
    exported = opened_at(tmp_path).history_export().to_pylist()
    ranges = [
        (row["run"], each["first_seq"], each["last_seq"])
        for row in exported
        for each in row["ranges"] or []
        if row["segment"] < 20
    ]
    assert ranges == [
        *((first, seq, seq) for seq in (5, 17)),
        *((second, *ends) for ends in ((1, 4), (6, 10), (11, 16), (18, 20))),
    ]


def test_holes_that_were_read_outlive_a_kill_behind_the_deletion(
    tmp_path: Path, format_: str
) -> None:
    _, second = holed(tmp_path, format_)
    time.sleep(TICK_S)
    with killed_at(Step.DEAD_DELETED):
        reclaim_now(again(tmp_path))
    assert " or an earlier one: " in explained(tmp_path, 6).sentence
    reclaimed(tmp_path)
    told = explained(tmp_path, 6)
    assert f"run {second} of " in told.sentence
    assert ": purge; " in told.sentence
    assert (told.removed or {})["certain"]
    [month] = files.names(evidence_directory(again(tmp_path).warehouse, "ORDERS"))
    assert not month.startswith("prepared")


@pytest.mark.parametrize(
    ("act", "seq"),
    [
        (lambda orders: orders.delete(17).apply().run, 17),
        (lambda orders: orders.purge().apply().run, 33),
        (lambda orders: orders.purge(subject="s.1").apply().run, 4),
    ],
    ids=["delete", "purge", "purge-subject"],
)
def test_a_request_is_told_as_before(
    tmp_path: Path, format_: str, act: Callable[[Any], str], seq: int
) -> None:
    run = act(laid(tmp_path, format_).stream("ORDERS"))
    before = cause(explained(tmp_path, seq))
    assert run in before[0]
    reclaimed(tmp_path)
    assert cause(explained(tmp_path, seq)) == before


def test_a_stream_that_was_dropped_and_begun_again_tells_both_lives(
    tmp_path: Path, format_: str
) -> None:
    warehouse = laid(tmp_path, format_, max_msgs=35)
    run = run_pass(tmp_path)
    drop = warehouse.stream("ORDERS").drop().apply().run
    reclaimed(tmp_path)
    opened_at(tmp_path).new_stream("ORDERS").publish([b'{"subject": "a", "data": "x"}'] * 2)
    for seq, taker in ((3, run), (33, drop)):
        told = explained(tmp_path, seq).sentence
        assert f", of the table that run {drop} dropped, was removed by run {taker} of " in told
        assert "undo can no longer restore it: reclaim " in told
    again_run = opened_at(tmp_path).stream("ORDERS").delete(1).apply().run
    reclaimed(tmp_path)
    assert f"run {again_run} of " in explained(tmp_path, 1).sentence


def test_a_run_that_was_undone_stays_on_record(tmp_path: Path, format_: str) -> None:
    emptied(tmp_path, format_)
    run = opened_at(tmp_path).history()[0]["run"]
    undo = opened_at(tmp_path).undo(run)["run"]
    second = run_pass(tmp_path)
    reclaimed(tmp_path)
    assert f"run {second} of " in explained(tmp_path, 3).sentence
    assert sum(loss["messages"] for loss in losses(tmp_path, run)) == 25
    assert opened_at(tmp_path).run(run).as_json()["recovery"]["undone_by"] == undo


def test_a_topic_is_told_as_before(tmp_path: Path, format_: str) -> None:
    config = {
        "defaults": {"format": format_, "grace": "0s"},
        "topics": [{"name": "clicks", "partitions": 2}],
    }
    (tmp_path / "retention.yaml").write_text(json.dumps(config), encoding="utf-8")
    topic = opened_at(tmp_path).topic("clicks")
    topic.publish([line(partition=1) for _ in range(5)])
    run = topic.purge().apply().run
    before = cause(opened_at(tmp_path).topic("clicks").explain(3, partition=1))
    time.sleep(TICK_S)
    [outcome] = opened_at(tmp_path).reclaim(["clicks"]).apply()
    assert outcome.error is None
    told = opened_at(tmp_path).topic("clicks").explain(3, partition=1)
    assert cause(told) == before
    assert run in told.sentence
    with pytest.raises(MissingMessageError, match="was never stored"):
        opened_at(tmp_path).topic("clicks").explain(3, partition=0)


def forget_ranges(folder: Path, run: str) -> None:
    """Reduce a run's records to those of an earlier version of this program."""
    files.delete([undo_location(again(folder), run, "ranges")])


def test_what_an_earlier_version_recorded_is_kept_as_far_as_it_goes(
    tmp_path: Path, format_: str
) -> None:
    emptied(tmp_path, format_)
    run = opened_at(tmp_path).history()[0]["run"]
    forget_ranges(tmp_path, run)
    before, lost = cause(explained(tmp_path, 3)), losses(tmp_path, run)
    assert "may have been removed by run" in before[0]
    reclaimed(tmp_path)
    assert cause(explained(tmp_path, 3)) == before
    assert losses(tmp_path, run) == lost
    details = opened_at(tmp_path).run(run)
    assert list(details.messages()) == []
    assert any(
        "an earlier version of this program recorded only whole files" in note
        for note in details.notes()
    )


def test_where_nothing_tells_it_is_not_said_that_nothing_happened(
    tmp_path: Path, format_: str
) -> None:
    emptied(tmp_path, format_)
    run = opened_at(tmp_path).history()[0]["run"]
    reclaimed(tmp_path)
    directory = evidence_directory(again(tmp_path).warehouse, "ORDERS")
    files.delete(f"{directory}/{name}" for name in files.names(directory))
    with pytest.raises(
        MissingMessageError,
        match=f"unknown whether a run removed it: run {run} of .* removed 25 ",
    ):
        explained(tmp_path, 3)
    assert any(
        "the messages that it removed are not recorded" in note
        for note in opened_at(tmp_path).run(run).notes()
    )
    opened_at(tmp_path).stream("ORDERS").drop().apply()
    opened_at(tmp_path).new_stream("ORDERS").publish([b'{"subject": "a", "data": "x"}'])
    with pytest.raises(
        MissingMessageError, match=r"unknown whether one .* was stored before the sequences"
    ):
        explained(tmp_path, 3)


def test_evidence_goes_with_the_history_that_it_belongs_to(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied(tmp_path, format_)
    first = opened_at(tmp_path).history()[0]["run"]
    real_warehouse(tmp_path, format_, max_msgs=12)
    second = run_pass(tmp_path)
    reclaimed(tmp_path)
    assert losses(tmp_path, first)
    real_warehouse(tmp_path, format_, max_msgs=12, history="1h")
    opened = later(tmp_path, monkeypatch, 2 * HOUR)
    reclaim_now(opened)
    runs = {record.run for record in history_of(opened.warehouse, "ORDERS").outcomes()}
    assert (first in runs, second in runs) == (False, True)
    monkeypatch.setattr(storage_clock, "storage_now", lambda _: opened.clock())
    evidence = RemovalEvidence(evidence_directory(opened.warehouse, "ORDERS"))
    assert list(evidence.of_run(first)) == []
    assert list(evidence.of_run(second)) != []


def test_a_damaged_record_is_refused_before_anything_is_deleted(
    tmp_path: Path, format_: str
) -> None:
    opened = emptied(tmp_path, format_)
    run = opened_at(tmp_path).history()[0]["run"]
    place = Path(undo_location(opened, run, "ranges"))
    place.write_bytes(place.read_bytes()[:-1])
    time.sleep(TICK_S)
    there = sorted(path for path in tmp_path.rglob("*.parquet") if path.is_file())
    with pytest.raises(
        DamagedError, match="reclaim would keep it as evidence; nothing was changed"
    ):
        reclaim_now(opened)
    assert sorted(path for path in tmp_path.rglob("*.parquet") if path.is_file()) == there
    place.rename(tmp_path / "aside")
    assert reclaim_now(again(tmp_path)).run is not None
    assert "may have been removed by run" in explained(tmp_path, 3).sentence


@pytest.mark.parametrize(
    "step", [Step.EVIDENCE_FOLDED, Step.EVIDENCE_REPLACED, Step.RECORDS_DELETED]
)
def test_a_reclaim_that_is_killed_says_the_same_when_it_is_done_again(
    tmp_path: Path, format_: str, step: Step
) -> None:
    opened = emptied(tmp_path, format_)
    run = opened_at(tmp_path).history()[0]["run"]
    lost, before = losses(tmp_path, run), cause(explained(tmp_path, 3))
    with killed_at(step):
        reclaim_now(opened)
    for _ in range(2):
        assert losses(tmp_path, run) == lost
        assert cause(explained(tmp_path, 3)) == before
        reclaimed(tmp_path)
    assert [
        len(names) for names in month_files(evidence_directory(opened.warehouse, "ORDERS")).values()
    ] == [1]
