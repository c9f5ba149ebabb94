"""Passes over tables of others: one commit, recorded; and their undo, whatever others did since."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from retention.apply.guards import Guards
from retention.delta import log_files
from retention.delta import snapshot as delta_log
from retention.delta.log_files import LogListing
from retention.errors import BusyError, RefusedError, StalePlanError, StorageError, UsageError
from retention.history.kinds import TableApplied
from retention.history.record import ABANDONED, DONE
from retention.storage.crash_points import Step, watched_by
from retention.tables.apply import apply_plan
from retention.tables.plan import FileRemovals
from retention.tables.planfile import is_of_tables, load_table_plans, save_table_plans
from retention.tables.recorded import settle
from retention.tables.undo import undo_run
from tests.retention.tables.tables import NOW, ROWS, Events, Removals, events
from tests.support.delta_tables import write_entry

FIRST = range(ROWS)
SOME: Removals = {
    0: {"max_age": None},
    1: {"max_age": BitMap64(range(10)), "max_rows": BitMap64([50, 52])},
}
LEFT = sorted({*range(4 * ROWS)} - {*FIRST, *range(100, 110), 150, 152})


@pytest.fixture(params=[False, True], ids=["copies", "vectors"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Events:
    return events(tmp_path, vectors=request.param)


def test_a_pass_removes_the_planned_rows_and_says_so(table: Events) -> None:
    plan = table.plan(SOME)
    report = apply_plan(table.opened, plan)
    assert table.ids() == LEFT
    assert report.as_json()["by_rule"] == {"max_age": 110, "max_rows": 2}
    assert report.as_json()["files"] == {"dropped": 1, "cut": 1, "kept": 2}
    done = table.opened.history.done(report.run)
    assert isinstance(done, TableApplied)
    assert (done.status, done.removed_rows, done.version_after) == (DONE, 112, 4)
    entry = DeltaTable(table.location).history(1)[0]
    assert json.loads(entry["userMetadata"])["run"] == report.run


def test_an_undo_brings_back_everything_once(table: Events) -> None:
    before = delta_log.read(table.location)
    run = apply_plan(table.opened, table.plan(SOME)).run
    undone = undo_run(table.opened, run)
    assert table.ids() == [*range(4 * ROWS)]
    assert (undone.restored_rows, undone.restored_files, undone.written_files) == (112, 2, 0)
    after = delta_log.read(table.location)
    assert sorted(after.files["path"].to_pylist()) == sorted(before.files["path"].to_pylist())
    with pytest.raises(RefusedError, match="undone already"):
        undo_run(table.opened, run)
    with pytest.raises(UsageError, match="no pass"):
        undo_run(table.opened, undone.run)


def test_an_undo_after_more_deletions_of_others_leaves_theirs(table: Events) -> None:
    run = apply_plan(table.opened, table.plan(SOME)).run
    now = delta_log.read(table.location)
    adds = [now.add_of(row) for row in range(now.files.num_rows)]
    [cut] = [add for add in adds if add["path"] == _cut_path(adds)]
    # Their means are ours: a vector united with the one that is there, or a copy of the copy.
    row = 20 if cut.get("deletionVector") else 10
    theirs = replace(
        table.plan({}), removals=(FileRemovals(cut, {"max_age": BitMap64([row])}, ROWS - 12),)
    )
    apply_plan(table.later(NOW + 10**9).opened, theirs)
    assert table.ids() == [number for number in LEFT if number != 120]
    undo_run(table.later(NOW + 2 * 10**9).opened, run)
    assert table.ids() == [number for number in range(4 * ROWS) if number != 120]


def _cut_path(adds: list[dict[str, object]]) -> str:
    """The path of the file with the ids from 100 on."""
    [path] = [
        str(add["path"])
        for add in adds
        if 100 <= json.loads(str(add["stats"]))["minValues"]["id"] < 200
    ]
    return path


def test_passes_over_one_file_are_undone_in_any_order(tmp_path: Path) -> None:
    table = events(tmp_path, vectors=True)
    first = apply_plan(table.opened, table.plan({1: {"max_age": BitMap64(range(10))}})).run
    now = delta_log.read(table.location)
    [cut] = [add for add in map(now.add_of, range(4)) if add.get("deletionVector")]
    more = FileRemovals(cut, {"max_rows": BitMap64([50])}, ROWS - 10)
    second = apply_plan(
        table.later(NOW + 10**9).opened, replace(table.plan({}), removals=(more,))
    ).run
    undo_run(table.later(NOW + 2 * 10**9).opened, first)
    assert table.ids() == [number for number in range(4 * ROWS) if number != 150]
    undo_run(table.later(NOW + 3 * 10**9).opened, second)
    assert table.ids() == [*range(4 * ROWS)]
    assert delta_log.read(table.location).files["vector"].null_count == 4


def test_an_undo_after_a_compaction_of_others_writes_the_rows_that_went(tmp_path: Path) -> None:
    table = events(tmp_path, vectors=False)
    run = apply_plan(table.opened, table.plan(SOME)).run
    DeltaTable(table.location).optimize.compact()
    undone = undo_run(table.opened, run)
    assert (undone.restored_files, undone.written_files) == (1, 1)
    assert table.ids() == [*range(4 * ROWS)]


def test_an_undo_does_not_rest_on_a_listing_without_the_run(
    table: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = apply_plan(table.opened, table.plan(SOME)).run
    stale, listed = {4}, log_files.list_log

    def without_the_newest(root: str) -> LogListing:
        listing = listed(root)
        return replace(listing, entries=listing.entries - stale)

    monkeypatch.setattr(log_files, "list_log", without_the_newest)
    undo_run(table.opened, run)
    assert table.ids() == [*range(4 * ROWS)]


def test_a_run_interrupted_before_the_warehouse_moved_keeps_its_files(table: Events) -> None:
    def fail(reached: Step) -> None:
        if reached is Step.DELTA_COMMITTED:
            raise KeyboardInterrupt

    with watched_by(fail), pytest.raises(KeyboardInterrupt):
        apply_plan(table.opened, table.plan(SOME))
    moved = f"{table.opened.warehouse}-moved"
    Path(table.opened.warehouse).rename(moved)
    [record] = _settled(Events(replace(table.opened, warehouse=moved)))
    assert (record.status, record.version_after, table.ids()) == (DONE, 4, LEFT)


def test_an_undo_while_others_restore_the_rows_leaves_them_once(tmp_path: Path) -> None:
    table = events(tmp_path, vectors=False)
    plan = table.plan({1: {"max_age": BitMap64(range(10))}})
    run = apply_plan(table.opened, plan).run
    DeltaTable(table.location).delete("id >= 100 and id < 200")

    def rival(step: Step) -> None:
        if step is Step.HISTORY_BEGUN:
            write_entry(Path(table.location), 6, [{"add": plan.removals[0].add}])

    with watched_by(rival), pytest.raises(StalePlanError, match="again while"):
        undo_run(table.opened, run)
    assert table.ids() == [*range(4 * ROWS)]


def test_an_undo_is_refused_where_files_are_gone_or_came_back(table: Events) -> None:
    plan = table.plan(SOME)
    run = apply_plan(table.opened, plan).run
    DeltaTable(table.location).restore(3)
    with pytest.raises(RefusedError, match=r"version 5 added .* again"):
        undo_run(table.opened, run)
    again = apply_plan(table.opened, table.plan({0: {"max_age": None}})).run
    (Path(table.location) / plan.removals[0].add["path"]).unlink()
    with pytest.raises(RefusedError, match="this file is gone, as after VACUUM"):
        undo_run(table.opened, again)


def test_appends_of_others_pass_and_their_removals_make_a_plan_stale(table: Events) -> None:
    plan = table.plan(SOME)
    table.append(4)
    apply_plan(table.opened, plan)
    assert table.ids() == [*LEFT, *range(4 * ROWS, 5 * ROWS)]
    with pytest.raises(StalePlanError, match="nothing was changed"):
        apply_plan(table.opened, plan)


def test_files_that_no_commit_names_are_deleted(tmp_path: Path) -> None:
    table = events(tmp_path, vectors=False)
    plan, before = table.plan({1: {"max_age": BitMap64([1])}}), _files(table)
    DeltaTable(table.location).delete("id >= 0")
    with pytest.raises(StalePlanError):
        apply_plan(table.opened, plan)
    assert _files(table) == before
    assert [record.status for record in _settled(table)] == [ABANDONED]


def _files(table: Events) -> list[str]:
    return sorted(path.name for path in Path(table.location).glob("*.parquet"))


def _settled(table: Events) -> list[TableApplied]:
    settle(table.opened)
    return [done for done in table.opened.history.outcomes() if isinstance(done, TableApplied)]


@pytest.mark.parametrize(
    ("step", "left", "status"),
    [(Step.DELTA_COMMITTED, LEFT, DONE), (Step.DELTA_COMMITTING, [*range(4 * ROWS)], ABANDONED)],
)
def test_files_are_deleted_only_if_the_log_shows_that_no_commit_names_them(
    table: Events, step: Step, left: list[int], status: str
) -> None:
    before = _files(table)

    def fail(reached: Step) -> None:
        if reached is step:
            raise StorageError("the disk is gone")

    # A commit that the log has is a success, though the storage failed after it.
    fails = pytest.raises(StorageError) if status == ABANDONED else nullcontext()
    with watched_by(fail), fails:
        apply_plan(table.opened, table.plan(SOME))
    assert table.ids() == left
    assert (_files(table) == before) == (status == ABANDONED or not _is_copied(table))
    [record] = _settled(table)
    assert record.status == status


def _is_copied(table: Events) -> bool:
    """Whether none of the three files that are left has a vector."""
    return delta_log.read(table.location).files["vector"].null_count == 3


def test_a_second_run_waits_or_is_busy(table: Events) -> None:
    plan = table.plan(SOME)

    def rival(step: Step) -> None:
        if step is Step.HISTORY_BEGUN:
            with pytest.raises(BusyError, match="held by"):
                apply_plan(table.opened, plan)

    with watched_by(rival):
        apply_plan(table.opened, plan)
    assert table.ids() == LEFT


def test_instants_that_may_be_mistakes_need_a_permission(table: Events) -> None:
    plan = replace(table.plan(SOME), as_of_ns=NOW + 1)
    with pytest.raises(RefusedError, match="later than the clock"):
        apply_plan(table.opened, plan)
    apply_plan(table.opened, plan, Guards(allow_future=True))
    earlier = table.plan({2: {"max_age": None}})
    with pytest.raises(RefusedError, match="earlier than the last applied one"):
        apply_plan(table.opened, earlier)
    apply_plan(table.opened, earlier, Guards(allow_rewind=True))
    assert table.ids()[0] == 110


def test_a_saved_plan_is_the_plan(table: Events, tmp_path: Path) -> None:
    plan, file = table.plan(SOME), str(tmp_path / "plan.json")
    save_table_plans(file, [plan])
    assert is_of_tables(file)
    [loaded] = load_table_plans(file)
    assert loaded == plan
    assert loaded.plan_id == plan.plan_id
