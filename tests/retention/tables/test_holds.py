"""Legal holds of tables in place: what they cover stays, everything else goes as without them, and no pass slips by."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.core.units import DAY
from retention.doctor.tables import check_table
from retention.engines.local import LocalEngine
from retention.errors import DamagedError, RefusedError, StalePlanError, UsageError
from retention.rules.tables.holds import HeldRows
from retention.rules.tables.ticks import TimeColumn
from retention.storage.crash_points import Step, watched_by
from retention.stores.holds import Hold, HoldRecords, new_id
from retention.tables import holds
from retention.tables.apply import apply_now, apply_plan
from retention.tables.committing import committing_runs
from retention.tables.holds import (
    TableHoldRecords,
    end_hold,
    hold_of_rows,
    parse_held_key,
    place_hold,
)
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_table
from retention.tables.reclaim import reclaim_table
from retention.tables.removed_rows import plan_statements
from retention.tables.state import state_of_table
from retention.tables.undo import undo_run
from retention.verify.tables import verify_table
from tests.retention.tables import directories
from tests.retention.tables.tables import NOW, events
from tests.retention.tables.worlds import TICK_US, laid
from tests.support.laws import law_on_disk
from tests.support.table_worlds import AS_OF_NS, TableWorld, table_worlds

SECOND = 10**9
COLUMNS = TableColumns(time=("at",), key=(("user",),))
AGED = TablePolicy(COLUMNS, TableLimits(max_age_ns=10 * DAY))
LOCAL: Callable[[int], LocalEngine] = lambda _: LocalEngine()  # noqa: E731


def table(folder: Path, policy: TablePolicy = AGED, partitions: Sequence[str] = ()) -> OpenedTable:
    """A table of two files with a row a day, `d` days old, of users a, b and none, in turn; null times last."""
    location = str(folder / "events")
    for tenant, first in (("x", 0), ("y", 20)):
        ages = [*range(first, first + 20), None]
        at = [None if age is None else (NOW - age * DAY) // 1000 for age in ages]
        rows = {
            "at": pa.array(at, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "day": pa.array([-1 if age is None else age for age in ages]),
            "user": pa.array([("a", "b", None)[n % 3] for n in range(len(ages))], pa.string()),
            "tenant": pa.array([tenant] * len(ages)),
        }
        write_deltalake(location, pa.table(rows), mode="append", partition_by=[*partitions] or None)
    (folder / "warehouse").mkdir(exist_ok=True)
    return OpenedTable("events", location, policy, str(folder / "warehouse"), lambda: NOW)


def days(opened: OpenedTable) -> list[int]:
    return sorted(pl.scan_delta(opened.location).collect()["day"].to_list())


def hold(opened: OpenedTable, key: Mapping[str, object] | str | None = None, **fields: int) -> Hold:
    now_ns = opened.clock()
    bare = Hold("events", new_id(now_ns), "case 41", at_ns=now_ns, **fields)  # type: ignore[arg-type]
    values = parse_held_key(opened, key) if isinstance(key, str) else key
    return place_hold(opened, hold_of_rows(opened, bare, values))


def plan(opened: OpenedTable) -> TablePlan:
    return plan_table(opened, opened.clock(), LOCAL)


OLD = [day for day in range(40) if day >= 10]
ALL = [-1, -1, *range(40)]


@pytest.mark.parametrize("partitions", [[], ["tenant"]])
@pytest.mark.parametrize(
    ("key", "times", "held"),
    [
        ("user=a", {}, [day for day in OLD if (day % 20) % 3 == 0]),
        ({"user": "a", "tenant": "y"}, {}, [day for day in OLD if day >= 20 and day % 20 % 3 == 0]),
        ("tenant=y", {}, [day for day in OLD if day >= 20]),
        (None, {"from_ns": NOW - 15 * DAY}, [10, 11, 12, 13, 14, 15]),
        (None, {"to_ns": NOW - 37 * DAY}, [38, 39]),
        (None, {"from_ns": NOW - 25 * DAY, "to_ns": NOW - 23 * DAY}, [24, 25]),
        ("user=b", {"from_ns": NOW - 14 * DAY}, [10, 13]),
        (None, {}, OLD),
    ],
)
def test_a_pass_leaves_the_held_rows(
    tmp_path: Path,
    partitions: list[str],
    key: dict[str, object] | str | None,
    times: dict[str, int],
    held: list[int],
) -> None:
    opened = table(tmp_path, partitions=partitions)
    placed = hold(opened, key, **times)
    report = apply_now(opened, NOW, LOCAL)
    assert days(opened) == sorted([*(day for day in ALL if day < 10), *held])
    assert report.plan.kept_by_holds == {placed.id: len(held)}
    assert report.as_json()["kept_by_holds"] == {placed.id: len(held)}
    state = state_of_table(opened, NOW)
    assert state.due is not None
    assert (state.due.lower, [each.id for each in state.holds]) == (0, [placed.id])
    end_hold(opened, placed, "released", "closed")
    assert apply_now(opened, NOW, LOCAL).removed_rows == len(held)
    assert days(opened) == [day for day in ALL if day < 10]


def test_statistics_decide_what_they_can(tmp_path: Path) -> None:
    opened = table(tmp_path, TablePolicy(COLUMNS, TableLimits(max_rows=0)), ["tenant"])
    from_log = plan(opened).files_read
    placed = hold(opened, "tenant=y")
    assert plan(opened).files_read == from_log
    for path in Path(opened.location).rglob("*.parquet"):
        path.chmod(0)
    state = state_of_table(opened, NOW)
    assert state.due is not None
    assert state.due.upper == 21
    assert placed.values == {"tenant": "y"}


def test_whole_files_stay_whole(tmp_path: Path) -> None:
    opened = table(
        tmp_path, TablePolicy(TableColumns(time=("day",), unit="s"), TableLimits(max_bytes=1))
    )
    whole = plan(opened).removed_rows
    hold(opened, "day=19")
    reduced = plan(opened)
    assert whole - reduced.removed_rows == 21
    assert reduced.passed_over == {"with_rows_under_legal_holds": 1}


def test_files_of_a_directory_stay_whole(tmp_path: Path) -> None:
    made = directories.directory(tmp_path)
    gone = directories.removed(made.plan())
    placed = hold(made.opened, "id=0")
    assert gone
    assert directories.removed(made.plan()) == []
    assert made.plan().kept_by_holds == {placed.id: len(gone)}
    before = made.files()
    apply_now(made.opened, NOW, LOCAL)
    assert made.files() == before


def test_a_saved_plan_from_before_a_hold_is_stale(tmp_path: Path) -> None:
    opened = table(tmp_path)
    made = plan(opened)
    placed = hold(opened, "user=a")
    with pytest.raises(StalePlanError, match="a legal hold was placed or released"):
        apply_plan(opened, made)
    assert plan(opened).plan_id != made.plan_id
    with pytest.raises(
        RefusedError, match=f"statements would remove rows under legal hold {placed.id}"
    ):
        plan_statements(opened, plan(opened))


@pytest.mark.parametrize("harm", ["lost", "damaged", "ended lost"])
def test_nothing_is_removed_while_a_record_is_missing(tmp_path: Path, harm: str) -> None:
    opened = table(tmp_path)
    placed = hold(opened, "user=a")
    record = Path(opened.home, "holds", f"{placed.id}.json")
    if harm == "ended lost":
        end_hold(opened, placed, "released", "closed")
        record = record.with_suffix(".ended.json")
    content = record.read_bytes()
    record.write_bytes(content.replace(b"case", b"cast")) if harm == "damaged" else record.unlink()
    for act in (plan, lambda each: apply_now(each, NOW, LOCAL), reclaim_table):
        with pytest.raises(DamagedError, match="nothing was removed; restore the file from a copy"):
            act(opened)
    assert days(opened) == ALL
    record.write_bytes(content)
    assert apply_now(opened, NOW, LOCAL).removed_rows


def test_a_hold_expires_on_record(tmp_path: Path) -> None:
    opened = table(tmp_path)
    placed = hold(opened, until_ns=NOW + DAY)
    assert plan(opened).is_empty
    later = replace(opened, clock=lambda: NOW + 2 * DAY)
    assert plan(later).is_empty
    report = apply_now(later, NOW, LOCAL)
    assert (report.removed_rows, report.expired_holds) == (30, [placed.id])
    assert [each.end and each.end.kind for each in TableHoldRecords(later).all()] == ["expired"]


def test_removed_files_with_held_rows_are_not_reclaimed(tmp_path: Path) -> None:
    opened = table(tmp_path)
    apply_now(opened, NOW, LOCAL)
    placed = hold(opened, "day=39")
    later = replace(opened, clock=lambda: NOW + 30 * DAY)
    report = reclaim_table(later)
    assert (report.going.files, report.staying["held"].files) == (1, 1)
    end_hold(opened, placed, "released", "closed")
    assert reclaim_table(later).going.files == 1


def test_holds_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    opened = table(tmp_path, TablePolicy(TableColumns(), TableLimits()))
    for key in ({"nothing": "x"}, {}, {"day": "monday"}, {"user": None}):
        with pytest.raises(UsageError):
            hold(opened, key)
    with pytest.raises(RefusedError, match="names no `time` column"):
        hold(opened, from_ns=0)
    with pytest.raises(RefusedError, match="neither subjects nor sequences"):
        hold_of_rows(opened, Hold("events", "x", "x", ranges=np.array([[1, 2]])), None)
    aged = replace(opened, policy=AGED)
    placed = hold(aged, "user=a")
    write_deltalake(
        opened.location,
        pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "day": [99], "tenant": ["x"]}),
        mode="overwrite",
        schema_mode="overwrite",
    )
    with pytest.raises(RefusedError, match=f"{placed.id} cannot be applied to the table"):
        plan(replace(aged, policy=replace(AGED, columns=TableColumns(time=("at",)))))


@dataclass
class Turn:
    """An act at one step of another."""

    step: int
    act: Callable[[], object]
    at: int = 0

    def __call__(self, step: Step) -> None:
        self.at += 1
        if self.at == self.step:
            self.act()


def steps_of(act: Callable[[], object]) -> int:
    steps: list[Step] = []
    with watched_by(steps.append):
        act()
    return len(steps)


@dataclass
class Duel:
    """A hold of everything and a pass on one table, one of them in the middle of the other."""

    opened: OpenedTable
    count: Callable[[], int]
    answer: Hold | None = None
    at_return: int = 0
    """The rows when `hold add` returned."""

    @classmethod
    def new(cls, folder: Path, kind: str) -> Duel:
        """A table with rows that are due."""
        folder.mkdir()
        if kind == "directory":
            made = directories.directory(folder)
            return cls(made.opened, made.rows)
        aged = TablePolicy(TableColumns(time=("at",), unit="s"), TableLimits(max_age_ns=DAY))
        one = events(folder, vectors=kind == "vectors")
        return cls(replace(one.opened, policy=aged), lambda: len(one.ids()))

    def place(self) -> None:
        self.answer = hold(self.opened)
        self.at_return = self.count()

    def remove(self) -> None:
        apply_now(self.opened, NOW, LOCAL)


@pytest.mark.parametrize("kind", ["copies", "vectors", "directory"])
@pytest.mark.parametrize("late", ["place", "remove"])
def test_a_hold_counts_or_names_the_pass_at_every_step(
    tmp_path: Path, late: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "WAIT_S", 0.0)
    early = "remove" if late == "place" else "place"
    total = steps_of(getattr(Duel.new(tmp_path / "count", kind), early))
    assert total >= len(("record", "name"))
    for step in range(1, total + 1):
        duel = Duel.new(tmp_path / str(step), kind)
        with watched_by(Turn(step, getattr(duel, late))):
            getattr(duel, early)()
        after = duel.count()
        assert duel.answer is not None
        if after < duel.at_return:
            # The rows that a pass removed after the return were announced.
            assert duel.answer.after_runs
        assert committing_runs(duel.opened) == []
        duel.remove()
        assert duel.count() == after


def test_a_dead_pass_does_not_hold_up_a_hold(tmp_path: Path) -> None:
    opened = table(tmp_path)

    class Killed(BaseException):
        pass

    def kill(step: Step) -> None:
        if step == Step.TABLE_COMMITTING:
            raise Killed

    with pytest.raises(Killed), watched_by(kill):
        apply_now(opened, NOW, LOCAL)
    assert committing_runs(opened)
    assert hold(opened).after_runs == ()
    assert committing_runs(opened) == []
    assert apply_now(opened, NOW, LOCAL).removed_rows == 0


def test_an_undo_brings_back_held_rows(tmp_path: Path) -> None:
    opened = table(tmp_path)
    run = apply_now(opened, NOW, LOCAL).run
    hold(opened)
    undo_run(opened, run)
    assert days(opened) == ALL
    assert apply_now(opened, NOW, LOCAL).removed_rows == 0


@law_on_disk
@given(table_worlds().filter(lambda world: world.rows), st.data())
def test_what_a_pass_removes_is_what_it_removes_without_holds_but_for_held_rows(
    world: TableWorld, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened = laid(world, Path(folder))
        without = places(plan_at(opened))
        key = data.draw(st.none() | st.dictionaries(st.sampled_from(["user", "shard"]), st.just(0)))
        chosen = data.draw(st.sampled_from(world.rows))
        values = {name: getattr(chosen, name) for name in key or {}}
        if None in values.values():
            values = {}
        low, high = sorted(data.draw(st.tuples(*[st.integers(0, AS_OF_NS)] * 2)))
        by_time = world.policy.columns.time is not None and data.draw(st.booleans())
        tick_ns = TICK_US * 1000
        times = {"from_ns": low * tick_ns, "to_ns": high * tick_ns} if by_time else {}
        hold(opened, values or None, **times)
        held = {
            (row.file, row.row)
            for row in world.rows
            if all(getattr(row, name) == value for name, value in values.items())
            and (not by_time or (row.time is not None and low <= row.time < high))
        }
        with_hold = plan_at(opened)
        if world.policy.columns.size is not None:
            assert places(with_hold) == without - held
        assert places(with_hold) & held == set()
        assert sum((with_hold.kept_by_holds or {}).values()) == len(without & held)


def plan_at(opened: OpenedTable) -> TablePlan:
    return plan_table(opened, opened.clock(), LOCAL)


def places(made: TablePlan) -> set[tuple[int, int]]:
    """The rows that a plan removes, as the world numbers them."""
    found: set[tuple[int, int]] = set()
    for each in made.removals:
        stored = pl.read_parquet(Path(made.location, each.add["path"]))
        for rows in each.rows.values():
            at = range(len(stored)) if rows is None else rows
            found |= {(stored["file"][row], stored["row"][row]) for row in at}
    return found


@pytest.mark.parametrize(
    ("kind", "zone", "first", "last"),
    [
        ("date", None, datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 3, tzinfo=UTC)),
        (
            "date",
            "Europe/Berlin",
            datetime(2026, 4, 30, 22, tzinfo=UTC),
            datetime(2026, 5, 2, 22, tzinfo=UTC),
        ),
    ],
)
def test_days_that_overlap_a_held_time_are_held(
    kind: str, zone: str | None, first: datetime, last: datetime
) -> None:
    from_ns, to_ns = (int(each.timestamp()) * SECOND for each in (first, last))
    time = TimeColumn(kind, zone)  # type: ignore[arg-type]
    day = (datetime(2026, 5, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
    rows = pa.table({"time": pa.array([*range(day - 2, day + 4), None], pa.int64())})
    for bounds, wanted in (
        ((from_ns, to_ns), [day, day + 1]),
        ((from_ns + 1, to_ns + 1), [day, day + 1, day + 2]),
        ((from_ns - 1, to_ns - 1), [day - 1, day, day + 1]),
    ):
        mask = HeldRows("x", {}, time, *bounds).covers(rows)
        assert rows["time"].filter(pa.array(mask)).to_pylist() == wanted


def test_a_repeated_local_time_is_held_by_either_instant() -> None:
    put_back = int(datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp())
    time = TimeColumn("timestamp_ntz", "Europe/Berlin")
    local = int(datetime(2026, 10, 25, 2, 30, tzinfo=UTC).timestamp()) * 10**6
    rows = pa.table({"time": pa.array([local], pa.int64())})

    def is_held(from_s: int | None, to_s: int | None) -> bool:
        bounds = (None if each is None else (put_back + each) * SECOND for each in (from_s, to_s))
        return bool(HeldRows("x", {}, time, *bounds).covers(rows)[0])

    assert is_held(None, -1799)
    assert not is_held(None, -1800)
    assert is_held(None, 600)
    assert is_held(1800, None)
    assert not is_held(1801, None)


def test_a_hold_comes_back_from_the_ledger_before_rows_are_removed(tmp_path: Path) -> None:
    opened = replace(table(tmp_path), ledger=str(tmp_path / "ledger"))
    apply_now(opened, NOW - 25 * DAY, LOCAL)
    saved = tmp_path / "saved"
    shutil.copytree(opened.warehouse, saved)
    ended, placed = hold(opened, "user=b"), hold(opened, "user=a")
    end_hold(opened, ended, "released", "closed")
    shutil.rmtree(opened.warehouse)
    shutil.copytree(saved, opened.warehouse)
    [pending] = TableHoldRecords(opened).in_effect()
    assert (pending.id, pending.line) == (placed.id, "pending")
    assert [each.check for each in verify_table(opened).damages] == ["ledger"]
    [finding] = [each for each in check_table(opened) if each.check == "ledger"]
    assert finding.result == "warning"
    (tmp_path / "ledger").rename(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="not the ledger"):
        apply_now(opened, NOW, LOCAL)
    (tmp_path / "elsewhere").rename(tmp_path / "ledger")
    apply_now(opened, NOW, LOCAL)
    assert [day for day in days(opened) if day >= 10] == [
        day for day in range(10, 35) if day % 20 % 3 == 0
    ]
    assert [each.id for each in TableHoldRecords(opened).in_effect()] == [placed.id]
    assert {each.id for each in TableHoldRecords(opened).all()} == {placed.id, ended.id}
    assert verify_table(opened).damages == ()


@pytest.mark.parametrize("step", [Step.LEDGER_HOLD_COPIED, Step.HOLD_RECORDED, Step.HOLD_NAMED])
def test_a_hold_that_was_killed_on_its_way_to_the_ledger_is_placed(
    tmp_path: Path, step: Step
) -> None:
    opened = replace(table(tmp_path), ledger=str(tmp_path / "ledger"))
    if step == Step.LEDGER_HOLD_COPIED:
        hold(replace(opened, ledger=None), "tenant=x")

    def kill(reached: Step) -> None:
        if reached == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), watched_by(kill):
        hold(opened, "user=a")
    apply_now(opened, NOW, LOCAL)
    kept = {day for day in OLD if step == Step.LEDGER_HOLD_COPIED and day < 20}
    kept |= {day for day in OLD if step != Step.LEDGER_HOLD_COPIED and day % 20 % 3 == 0}
    assert {day for day in days(opened) if day >= 10} == kept
    home = str(tmp_path / "ledger/tables/events")
    assert HoldRecords(home, "events").names() == HoldRecords(opened.home, "events").names()
