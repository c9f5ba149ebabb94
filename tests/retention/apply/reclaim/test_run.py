"""Dead files are deleted after their grace, and nothing else is, on both stores."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.apply.reclaim.run import RECORDS, plan_reclaim, reclaim_now
from retention.apply.recover import settle_interrupted
from retention.apply.undo import undo_run
from retention.apply.undo_records import read_record
from retention.context.context import OpenedStream
from retention.core.reclaim import Hindrance, Reason
from retention.core.units import HOUR
from retention.errors import RefusedError, StalePlanError, UsageError, VerificationError
from retention.history.runs import history_of
from retention.storage.crash_points import Step, watched_by
from retention.stores import storage_clock
from retention.stores.claims import Claims
from retention.stores.layout import Layout
from tests.support.laying import even_segments, held, lay
from tests.support.reclaiming import TICK_S, again, data_files, emptied, real_warehouse, run_pass

pytestmark = pytest.mark.parametrize("format_", ["delta", "parquet"])


COMMITTED = {"delta": Step.DELTA_COMMITTED, "parquet": Step.MOVES_NOTED}
"""The step after a claim's commit."""


class KilledError(Exception):
    """The kill of a process during a reclaim."""


def lose_lease(folder: Path) -> None:
    (folder / "streams" / "ORDERS" / "_retention" / "maintenance.lease").unlink()


def claims(opened: OpenedStream) -> Claims:
    return Claims(Layout(opened.root, opened.name))


def test_removed_files_go_and_the_messages_stay(tmp_path: Path, format_: str) -> None:
    opened = emptied(tmp_path, format_)
    before = held(open_warehouse(tmp_path))
    assert len(data_files(tmp_path)) == 5
    report = reclaim_now(opened)
    assert report.going[Reason.REMOVED].files == 3
    assert report.going[RECORDS].files == 3
    assert len(data_files(tmp_path)) == 2
    assert held(open_warehouse(tmp_path)).equals(before)
    assert claims(opened).read() == {}
    assert reclaim_now(again(tmp_path)).going == {}


def test_a_dry_run_changes_nothing_and_says_the_same(tmp_path: Path, format_: str) -> None:
    opened = emptied(tmp_path, format_)
    there = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    planned = plan_reclaim(opened)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == there
    assert reclaim_now(opened).going == planned.going


def test_within_the_grace_nothing_goes(tmp_path: Path, format_: str) -> None:
    opened = emptied(tmp_path, format_, grace="1h")
    report = reclaim_now(opened)
    assert report.going == {}
    assert report.staying[Hindrance.GRACE].files == 3
    assert len(data_files(tmp_path)) == 5


def test_a_grace_that_was_made_longer_holds(tmp_path: Path, format_: str) -> None:
    emptied(tmp_path, format_)
    real_warehouse(tmp_path, format_, max_msgs=15, grace="7d")
    assert reclaim_now(again(tmp_path)).going == {}


def test_what_came_back_by_undo_stays_and_goes_after_its_second_removal(
    tmp_path: Path, format_: str
) -> None:
    opened = emptied(tmp_path, format_)
    run = next(history_of(opened.warehouse, "ORDERS").outcomes()).run
    undo_run(again(tmp_path), run)
    time.sleep(TICK_S)
    assert held(open_warehouse(tmp_path)).num_rows == 40
    # The undo removed the copy written by the pass.
    assert reclaim_now(again(tmp_path)).going[Reason.REMOVED].files == 1
    assert held(open_warehouse(tmp_path)).num_rows == 40
    with pytest.raises(UsageError, match="undone already"):
        undo_run(again(tmp_path), run)
    run_pass(tmp_path)
    assert reclaim_now(again(tmp_path)).going[Reason.REMOVED].files == 3
    assert held(open_warehouse(tmp_path)).num_rows == 15


@pytest.mark.parametrize("killed", [True, False])
def test_an_undo_under_way_loses_against_a_claim(
    tmp_path: Path, format_: str, *, killed: bool
) -> None:
    opened = emptied(tmp_path, format_)
    run = next(history_of(opened.warehouse, "ORDERS").outcomes()).run
    acted: list[Step] = []

    def reclaim_meanwhile(step: Step) -> None:
        if step is Step.UNDO_KEPT and not acted:
            acted.append(step)
            # As after a lost lease: the undo is paused before its commit.
            lose_lease(tmp_path)
            with suppress(KilledError):
                reclaim_now(again(tmp_path))
        elif step is COMMITTED[format_] and killed and len(acted) == 1:
            acted.append(step)
            raise KilledError

    refusal = (
        pytest.raises(StalePlanError, match="claimed")
        if killed
        else pytest.raises(VerificationError, match="missing")
    )
    with watched_by(reclaim_meanwhile), refusal:
        undo_run(opened, run)
    assert len(acted) == 1 + killed
    assert held(open_warehouse(tmp_path)).num_rows == 15
    # Repeated, it deletes the files claimed by the killed run.
    reclaim_now(again(tmp_path))
    assert claims(opened).read() == {}
    assert len(data_files(tmp_path)) == 2


@pytest.mark.parametrize("step", [Step.CLAIM_KEPT, Step.HISTORY_BEGUN])
def test_a_claim_loses_against_an_undo_that_came_first(
    tmp_path: Path, format_: str, step: Step
) -> None:
    opened = emptied(tmp_path, format_)
    run = next(history_of(opened.warehouse, "ORDERS").outcomes()).run
    acted: list[Exception | None] = []

    def undo_meanwhile(reached: Step) -> None:
        if reached is step and not acted:
            acted.append(None)
            lose_lease(tmp_path)
            try:
                undo_run(again(tmp_path), run)
            except RefusedError as error:
                acted[0] = error

    overtaken = step is Step.HISTORY_BEGUN
    refusal = pytest.raises(StalePlanError, match="another run committed")
    with watched_by(undo_meanwhile), refusal if overtaken else nullcontext():
        reclaim_now(opened)
    if overtaken:
        assert acted == [None]
        assert held(open_warehouse(tmp_path)).num_rows == 40
    else:
        assert "a reclaim is deleting" in str(acted[0])
        assert held(open_warehouse(tmp_path)).num_rows == 15


def test_a_claim_stays_while_a_file_of_it_is_there(tmp_path: Path, format_: str) -> None:
    """Its process may only be paused, and may delete the file at any time."""
    opened = emptied(tmp_path, format_, grace="1h")
    run = next(history_of(opened.warehouse, "ORDERS").outcomes()).run
    removed = read_record(opened, run, "removed")["path"].to_pylist()
    claims(opened).write("another-reclaim", removed[:1])
    reclaim_now(again(tmp_path))
    assert claims(opened).claimed() == set(removed[:1])
    with pytest.raises(RefusedError, match="a reclaim is deleting"):
        undo_run(again(tmp_path), run)


def test_files_that_somebody_deleted_are_no_reason_to_commit(tmp_path: Path, format_: str) -> None:
    opened = emptied(tmp_path, format_)
    live = {file.location for file in opened.store.data_files(opened.store.snapshot().files)}
    for name in data_files(tmp_path):
        place = tmp_path / "streams" / "ORDERS" / name
        if str(place) not in live:
            place.unlink()
    version = opened.store.snapshot().version
    report = reclaim_now(again(tmp_path))
    assert list(report.going) == [RECORDS]
    assert again(tmp_path).store.snapshot().version == version


def test_clocks_that_differ_are_refused(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = emptied(tmp_path, format_)
    monkeypatch.setattr(storage_clock, "storage_now", lambda _: opened.clock() + HOUR)
    with pytest.raises(RefusedError, match="clock of the storage"):
        reclaim_now(opened)
    assert len(data_files(tmp_path)) == 5


def test_a_run_whose_outcome_is_young_on_the_storage_keeps_its_files(
    tmp_path: Path, format_: str
) -> None:
    opened = emptied(tmp_path, format_, grace="1h")
    two_hours_ago = opened.clock() - 2 * HOUR
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(two_hours_ago, two_hours_ago))
    # Everything except the timestamps is old: the run itself has a recent time.
    assert reclaim_now(opened).staying[Hindrance.GRACE].files == 3


@pytest.mark.parametrize("killed", [True, False])
def test_files_of_an_abandoned_run_go_and_its_paused_writer_is_refused(
    tmp_path: Path, format_: str, *, killed: bool
) -> None:
    opened = real_warehouse(tmp_path, format_, max_msgs=15).stream("ORDERS").opened
    lay(opened, even_segments(4, 10))
    acted: list[Step] = []

    def reclaim_meanwhile(step: Step) -> None:
        if step is Step.HISTORY_BEGUN and not acted:
            acted.append(step)
            time.sleep(TICK_S)
            lose_lease(tmp_path)
            other = again(tmp_path)
            # The run is considered dead and settled; then its grace ends.
            settle_interrupted(other, history_of(other.warehouse, "ORDERS"))
            time.sleep(TICK_S)
            with suppress(KilledError):
                assert reclaim_now(other).going[Reason.ABANDONED].files == 1
        elif step is COMMITTED[format_] and killed and len(acted) == 1:
            acted.append(step)
            raise KilledError

    with watched_by(reclaim_meanwhile):
        [outcome] = open_warehouse(tmp_path / "retention.yaml", engine="local").apply()
    assert isinstance(outcome.error, StalePlanError if killed else VerificationError)
    assert ("another run committed" if killed else "missing") in str(outcome.error)
    assert held(open_warehouse(tmp_path)).num_rows == 40
    run_pass(tmp_path)
    assert held(open_warehouse(tmp_path)).num_rows == 15
    reclaim_now(again(tmp_path))
    assert claims(again(tmp_path)).read() == {}
    assert len(data_files(tmp_path)) == 2


def test_claims_on_removed_files_make_no_publisher_stage_again(
    tmp_path: Path, format_: str
) -> None:
    emptied(tmp_path, format_)
    stream = open_warehouse(tmp_path / "retention.yaml").stream("ORDERS")
    steps: list[Step] = []

    def reclaim_meanwhile(step: Step) -> None:
        if step is Step.DATA_COUNTED and step not in steps:
            steps.append(step)
            assert reclaim_now(again(tmp_path)).run is not None
        steps.append(step)

    with watched_by(reclaim_meanwhile):
        stream.publish([b'{"subject": "a", "data": "x"}'])
    # After a change of the log, an append restarts anyway to assign sequences; its files were not claimed.
    assert held(open_warehouse(tmp_path)).num_rows == 16
