"""Disk space of tables in place: only what our passes removed is deleted, after the grace, and never what is live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from retention.config.keeping import RunSettings
from retention.core.units import DAY
from retention.delta import log_files
from retention.errors import BusyError, RefusedError, UsageError
from retention.history.kinds import TableReclaimed
from retention.storage.crash_points import Step, watched_by
from retention.tables.apply import apply_plan
from retention.tables.reclaim import plan_table_reclaim, reclaim_table
from retention.tables.recorded import maintained
from retention.tables.undo import undo_run
from tests.retention.tables.tables import NOW, Events, events
from tests.retention.tables.test_apply import LEFT, SOME


@pytest.fixture
def table(tmp_path: Path) -> Events:
    return events(tmp_path, vectors=False)


def names(table: Events) -> set[str]:
    return {path.name for path in Path(table.location).glob("*.parquet")}


def after(table: Events, days: int) -> Events:
    return table.later(NOW + days * DAY)


def test_what_a_pass_removed_is_deleted_after_its_grace(table: Events) -> None:
    before = names(table)
    run = apply_plan(table.opened, table.plan(SOME)).run
    assert reclaim_table(after(table, 7).opened).staying["grace"].files == 2
    assert names(table) >= before
    later = after(table, 8)
    planned = plan_table_reclaim(later.opened)
    assert (planned.going.files, planned.is_done, names(table) >= before) == (2, False, True)
    done = reclaim_table(later.opened)
    assert (done.going, len(before - names(table))) == (planned.going, 2)
    assert table.ids() == LEFT
    [record, _] = later.opened.history.outcomes()
    assert isinstance(record, TableReclaimed)
    assert (record.run, record.reclaimed["removed"].files) == (done.run, 2)
    with pytest.raises(RefusedError, match="gone, as after VACUUM or reclaim"):
        undo_run(later.opened, run)
    assert reclaim_table(later.opened).run is None


def test_an_undo_that_lost_its_lease_adds_no_deleted_file(
    table: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention.stores.lease.can_expire", lambda _: True)
    run = apply_plan(table.opened, table.plan(SOME)).run
    reclaims = [after(table, 8).opened]

    def lose_lease(step: Step) -> None:
        if step is Step.ENTRY_SYNCED and reclaims:
            for held in Path(table.opened.home).rglob("*.lease"):
                held.unlink()
            reclaim_table(reclaims.pop())

    with watched_by(lose_lease), pytest.raises(BusyError, match="another process settled run"):
        undo_run(table.opened, run)
    assert table.ids() == LEFT
    [settled] = [
        each for each in DeltaTable(table.location).history() if each["operation"] == "SETTLE"
    ]
    assert "settles" in settled["userMetadata"]


def test_the_owner_s_longer_retention_counts(table: Events) -> None:
    longer = replace(table.opened, settings=RunSettings.model_validate({"grace": "20d"}))
    apply_plan(table.opened, table.plan(SOME))
    assert plan_table_reclaim(replace(after(table, 19).opened, settings=longer.settings)).staying
    DeltaTable(table.location).alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 30 days"}
    )
    assert plan_table_reclaim(after(table, 29).opened).staying["grace"].files == 2
    assert plan_table_reclaim(after(table, 31).opened).going.files == 2


def test_files_that_others_name_again_or_removed_stay(table: Events) -> None:
    before = names(table)
    run = apply_plan(table.opened, table.plan(SOME)).run
    DeltaTable(table.location).restore(3)
    later = after(table, 9)
    assert reclaim_table(later.opened).going.files == 0
    DeltaTable(table.location).delete("id >= 0")
    kept = reclaim_table(later.opened)
    assert (kept.going.files, kept.staying["restored"].files) == (0, 2)
    assert names(table) >= before
    assert later.opened.history.done(run)


def test_a_run_that_was_undone_leaves_its_files(table: Events) -> None:
    before = names(table)
    undo_run(table.later(NOW + 1).opened, apply_plan(table.opened, table.plan(SOME)).run)
    assert reclaim_table(after(table, 9).opened).going.files == 0
    assert names(table) >= before


def test_a_file_is_kept_if_the_log_no_longer_names_its_removal(table: Events) -> None:
    version = apply_plan(table.opened, table.plan(SOME)).version_after
    table.append(9)
    DeltaTable(table.location).create_checkpoint()
    Path(log_files.entry_place(table.location, version)).unlink()
    assert reclaim_table(after(table, 9).opened).staying["gap"].files == 2


def test_a_killed_reclaim_is_finished_by_the_next(table: Events) -> None:
    apply_plan(table.opened, table.plan(SOME))
    later = after(table, 9)

    def kill(step: Step) -> None:
        if step is Step.HISTORY_BEGUN:
            raise KeyboardInterrupt

    with watched_by(kill), pytest.raises(KeyboardInterrupt):
        reclaim_table(later.opened)
    with maintained(later.opened):
        [record, _] = later.opened.history.outcomes()
    assert (record.kind, record.is_done, record.settled) == ("reclaim_table", True, True)
    assert reclaim_table(later.opened).going.files == 2


def test_records_are_forgotten_once_history_and_grace_are_over(table: Events) -> None:
    short = RunSettings.model_validate({"grace": "1d", "history": "10d"})
    table = Events(replace(table.opened, settings=short))
    home, runs = Path(table.opened.home), table.opened.history
    first = apply_plan(table.opened, table.plan(SOME)).run
    undo = undo_run(table.opened, first).run
    second = apply_plan(table.opened, replace(table.plan(SOME), as_of_ns=NOW)).run
    assert reclaim_table(after(table, 9).opened).history.files == 0
    reclaimed = runs.finished()[0]
    planned = plan_table_reclaim(after(table, 20).opened)
    assert (planned.history.files, runs.done(first) is None) == (6, False)

    def kill(step: Step) -> None:
        if step is Step.HISTORY_FORGOTTEN:
            raise KeyboardInterrupt

    with watched_by(kill), pytest.raises(KeyboardInterrupt):
        reclaim_table(after(table, 20).opened)
    assert (home / "changes" / f"{first}.parquet").exists()
    reclaim_table(after(table, 20).opened)
    assert runs.finished() == [reclaimed, second]
    assert [path.stem for path in (home / "changes").iterdir()] == [second]
    assert undo not in runs.finished()
    with pytest.raises(UsageError):
        undo_run(table.opened, first)
