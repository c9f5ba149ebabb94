"""Directories of Parquet files in place: which files are removed, and where they are until they are back."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.engines.local import LocalEngine
from retention.errors import (
    ConfigError,
    RefusedError,
    StalePlanError,
    StorageError,
    UsageError,
)
from retention.history.record import ABANDONED, DONE, UNKNOWN
from retention.storage.crash_points import Step, watched_by
from retention.tables.apply import apply_now, apply_plan
from retention.tables.directory.moves import files_aside
from retention.tables.planfile import load_table_plans, save_table_plans
from retention.tables.planning import plan_table
from retention.tables.undo import undo_run
from tests.retention.tables.directories import (
    AT,
    DAY,
    TEN_DAYS,
    Directory,
    at,
    directory,
    removed,
    rewrite,
)
from tests.retention.tables.tables import NOW
from tests.support.table_worlds import AS_OF_NS, Row, TableWorld, table_worlds
from tests.support.table_worlds import removed as removed_rows

ALL = ["kind=x/a.parquet", "kind=x/b.parquet", "kind=y/c.parquet", "kind=y/d.parquet"]
MAX_AGE = TEN_DAYS.limits


@pytest.fixture
def events(tmp_path: Path) -> Directory:
    return directory(tmp_path)


def test_a_pass_moves_the_files_of_which_no_row_stays(events: Directory) -> None:
    plan = events.plan()
    assert (removed(plan), plan.by_limit) == (["kind=x/a.parquet"], {"max_age": 3})
    assert plan.passed_over == {"with_rows_that_stay": 1}
    report = apply_plan(events.opened, plan)
    assert events.files() == ALL[1:]
    assert events.aside() == ["a.parquet.removed"]
    [(place, size)] = files_aside(events.opened.location, report.run).items()
    assert (Path(place).name, size) == ("a.parquet.removed", plan.removed_bytes)
    assert report.as_json()["files"] == {"dropped": 1, "cut": 0, "kept": 3}
    done = events.opened.history.done(report.run)
    assert done is not None
    assert done.status == DONE
    assert events.plan().is_empty


def test_an_undo_moves_them_back(events: Directory) -> None:
    before = (events.root / ALL[0]).stat()
    run = apply_plan(events.opened, events.plan()).run
    undone = undo_run(events.opened, run)
    assert files_aside(events.opened.location, run) == {}
    assert (undone.restored_rows, undone.restored_files, undone.written_files) == (3, 1, 0)
    after = (events.root / ALL[0]).stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_nlink) == (
        before.st_ino,
        before.st_mtime_ns,
        1,
    )
    assert (events.files(), events.aside()) == (ALL, [])
    assert not (events.root.parent / "_retention").exists()
    with pytest.raises(RefusedError, match="undone already"):
        undo_run(events.opened, run)


def test_a_saved_plan_is_the_same_plan(events: Directory, tmp_path: Path) -> None:
    place = str(tmp_path / "plan.json")
    save_table_plans(place, [events.plan()])
    [plan] = load_table_plans(place)
    assert plan == events.plan()
    apply_plan(events.opened, plan)
    assert events.files() == ALL[1:]


@pytest.mark.parametrize("change", [rewrite, Path.unlink], ids=["written-again", "gone"])
def test_a_file_that_changed_since_the_plan_ends_the_run(
    events: Directory, change: Callable[[Path], None]
) -> None:
    plan = events.plan()
    change(events.root / ALL[0])
    files = events.files()
    with pytest.raises(
        StalePlanError, match=r"a\.parquet: this file is gone, or was written again"
    ):
        apply_plan(events.opened, plan)
    assert (events.files(), events.aside()) == (files, [])
    assert [record.status for record in events.opened.history.outcomes()] == [ABANDONED]


def test_a_file_written_again_at_the_last_moment_is_back_in_place(
    events: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, real = events.plan(), os.rename

    def rename(source: str, target: str) -> None:
        rewrite(Path(source))
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(StalePlanError):
        apply_plan(events.opened, plan)
    assert (events.files(), events.aside()) == (ALL, [])


@pytest.mark.parametrize("links", [True, False], ids=["links", "no-links"])
def test_a_file_that_cannot_be_moved_leaves_all_in_place(
    events: Directory, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    events.write(ALL[3], [40])
    plan, real = events.plan(), os.rename
    assert removed(plan) == [ALL[0], ALL[3]]

    def rename(source: str, target: str) -> None:
        if "d.parquet" in source and "_retention" not in source:
            raise OSError(errno.EXDEV if links else errno.EIO, "no")
        real(source, target)

    def link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(os, "rename", rename)
    if not links:
        monkeypatch.setattr(os, "link", link)
    with pytest.raises(RefusedError if links else StorageError):
        apply_plan(events.opened, plan)
    assert (events.files(), events.aside()) == (ALL, [])
    assert not (events.root.parent / "_retention").exists()
    assert [record.status for record in events.opened.history.outcomes()] == [ABANDONED]
    monkeypatch.setattr(os, "rename", real)
    run = apply_plan(events.opened, plan).run
    assert events.files() == ALL[1:3]
    undo_run(events.opened, run)
    assert (events.files(), events.aside()) == (ALL, [])


def test_a_pass_after_a_killed_one_removes_its_files_too(events: Directory) -> None:
    events.write(ALL[3], [40])
    plan = events.plan()

    class Killed(BaseException):
        pass

    def kill(step: Step) -> None:
        if step == Step.FILE_MOVED:
            raise Killed

    with watched_by(kill), pytest.raises(Killed):
        apply_plan(events.opened, plan)
    assert events.files() == ALL[1:]
    report = apply_now(events.opened, NOW, lambda _: LocalEngine())
    assert (report.plan.plan_id, events.files()) == (plan.plan_id, ALL[1:3])


def test_a_run_whose_file_lost_its_name_is_unknown(
    events: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    events.write(ALL[3], [40])
    plan, real = events.plan(), os.rename

    def rename(source: str, target: str) -> None:
        if "d.parquet" in source:
            events.write(ALL[0], [1])
            raise OSError(errno.EIO, "no")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(StorageError):
        apply_plan(events.opened, plan)
    assert [record.status for record in events.opened.history.outcomes()] == [UNKNOWN]
    assert (events.files(), events.aside()) == (ALL, ["a.parquet.removed"])


def test_an_undo_never_replaces_a_file(events: Directory) -> None:
    run = apply_plan(events.opened, events.plan()).run
    events.write(ALL[0], [1])
    with pytest.raises(RefusedError, match="another file has this name by now"):
        undo_run(events.opened, run)
    assert events.rows() == 6
    (events.root / ALL[0]).unlink()
    (events.root / "kind=x" / "b.parquet").unlink()
    (events.root / "kind=x").rmdir()
    undo_run(events.opened, run)
    assert events.files() == [ALL[0], *ALL[2:]]


def test_an_undo_of_a_file_that_is_gone_is_refused(events: Directory) -> None:
    events.write(ALL[3], [40])
    run = apply_plan(events.opened, events.plan()).run
    next((events.root.parent / "_retention").rglob("d.parquet.removed")).unlink()
    with pytest.raises(RefusedError, match=r"d\.parquet\.removed: this file is gone"):
        undo_run(events.opened, run)
    assert events.files() == ALL[1:3]


def test_an_emptied_directory_is_a_table_without_rows(events: Directory) -> None:
    everything = replace(TEN_DAYS, limits=TableLimits(max_age_ns=1))
    emptied = events.with_policy(everything)
    apply_plan(emptied.opened, emptied.plan())
    assert emptied.files() == []
    plan = emptied.plan()
    assert (plan.is_empty, plan.files) == (True, 0)
    with pytest.raises(UsageError, match="there is no directory"):
        at(events.root / "nowhere").plan()


HIDDEN = [
    "_old/e.parquet",
    ".old/e.parquet",
    "_e.parquet",
    ".e.parquet.part",
    "+tmp/e.parquet",
    "kind=x/e_tmp.parquet",
    "_temporary/0/e.parquet",
    "e.txt",
]


@pytest.mark.parametrize("path", HIDDEN)
def test_names_that_are_no_data(events: Directory, path: str) -> None:
    events.write(path, [50])
    plan = events.plan()
    assert (removed(plan), plan.files) == ([ALL[0]], 4)


def test_files_that_may_not_be_complete_or_not_be_its_own_stay(
    events: Directory, tmp_path: Path
) -> None:
    outside = at(tmp_path / "elsewhere").write("e.parquet", [50])
    (events.root / "f.parquet").symlink_to(outside)
    (events.root / "kind=z").symlink_to(outside.parent, target_is_directory=True)
    (events.root / "g.parquet").write_bytes(b"PAR1 and no more")
    (events.root / "h.parquet").write_bytes(b"")
    seconds = NOW // 10**9
    for name, age in (("i", 59), ("j", -59), ("k", 61)):
        os.utime(events.write(f"{name}.parquet", [50]), (seconds - age,) * 2)
    (events.root / "_SUCCESS").touch()
    plan = events.plan()
    assert removed(plan) == ["k.parquet", ALL[0]]
    assert plan.passed_over == {
        "symbolic_links": 2,
        "without_readable_footer": 2,
        "recently_modified": 2,
        "with_rows_that_stay": 1,
    }
    apply_plan(events.opened, plan)
    assert outside.exists()


LOGS = [
    ("_delta_log/", "it is a Delta table"),
    ("_spark_metadata/0", "a Spark streaming sink lists its files there"),
    ("_metadata", "readers go by this summary"),
    (".hoodie/", "it is a Hudi table"),
    ("metadata/v1.metadata.json", "it is an Iceberg table"),
    ("_retention/format.json", "it is a stream of this program"),
]


@pytest.mark.parametrize("below", ["", "../", "kind=x/"], ids=["here", "above", "inside"])
@pytest.mark.parametrize(("log", "why"), LOGS)
def test_a_directory_with_a_list_of_its_files_is_refused(
    events: Directory, log: str, why: str, below: str
) -> None:
    place = events.root / below / log
    place.parent.mkdir(parents=True, exist_ok=True)
    if log.endswith("/"):
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    with pytest.raises(RefusedError, match=why):
        events.plan()


ODD = [
    "a b",
    "100%",
    "%20",
    "a=b/x=y",
    "x=a%3Ab c",
    "é",
    "\n",
    "x=__HIVE_DEFAULT_PARTITION__",
    "*?[a]",
]


@pytest.mark.parametrize("name", ODD)
def test_odd_names(tmp_path: Path, name: str) -> None:
    events = at(tmp_path)
    Path(events.opened.warehouse).mkdir()
    events.write(f"{name}/{name.replace('/', '')}.parquet", [30])
    events.write(f"{name}/b.parquet", [1])
    before = events.files()
    run = apply_plan(events.opened, events.plan()).run
    assert events.files() == [f"{name}/b.parquet"]
    undo_run(events.opened, run)
    assert events.files() == before


KINDS = [
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.timestamp("ns"),
    pa.date32(),
]


@pytest.mark.parametrize("bounded", [True, False], ids=["statistics", "none"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_times_of_each_type_are_exact(tmp_path: Path, kind: pa.DataType, bounded: bool) -> None:
    """A row goes at its instant plus `max_age`, not a microsecond earlier; a day when it has ended."""
    columns = TableColumns(time=("event", "at"), zone="UTC")
    events = at(tmp_path, TablePolicy(columns, TableLimits(max_age_ns=DAY * 10**9)))
    tick = {"ms": 10**6, "us": 1000, "ns": 1}[getattr(kind, "unit", "us")]
    due, next_tick = (NOW - DAY * 10**9) // tick, 1000 if tick == 1 else 1
    if pa.types.is_date32(kind):
        due = (NOW // 10**9) // DAY - 2
    times: dict[str, list[int | None]] = {
        "due": [due, due - 5],
        "later": [due, due + next_tick],
        "null": [due, None],
    }
    stored = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    values = {name: pa.array(each, stored).cast(kind) for name, each in times.items()}
    for name, array in values.items():
        table = {"event": pa.StructArray.from_arrays([array], ["at"])}
        events.put(f"{name}.parquet", table, write_statistics=bounded, version="2.6")
    assert removed(events.plan()) == ["due.parquet"]


def test_int96_is_read_and_year_9999_is_no_overflow(tmp_path: Path) -> None:
    events = at(tmp_path)
    old = pa.array(
        [datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)], pa.timestamp("us")
    )
    never = pa.array(
        [datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)], pa.timestamp("us")
    )
    events.put("old.parquet", {"at": old}, use_deprecated_int96_timestamps=True)
    events.put("never.parquet", {"at": never})
    plan = events.with_policy(replace(TEN_DAYS, columns=replace(TEN_DAYS.columns, zone="UTC")))
    with pytest.raises(ConfigError, match="timestamp or timestamp_ntz"):
        plan.plan()
    (events.root / "never.parquet").unlink()
    read = events.plan()
    assert (removed(read), read.files_read) == (["old.parquet"], 1)


SPELLED = [
    (["dt=2027-01-04", "dt=2027-01-05", "dt=__HIVE_DEFAULT_PARTITION__"], "dt", [0]),
    (["year=2027/month=01/day=04", "year=2027/month=1/day=5", "year=2027/month=x/day=1"], "year/month/day", [0]),
    (["year=2026/month=12", "year=2027/month=1"], "year/month", [0]),
    (["yyyy=2027/mm=01/dd=05/hh=07", "yyyy=2027/mm=01/dd=05/hh=08"], "yyyy/mm/dd/hh", [0]),
    (["topic=a/dt=2027-01-05/hour=7", "topic=b/dt=2027-01-05/hour=8"], "dt/hour", [0]),
    (["dt=2027-01-05/hour=7/minute=59", "dt=2027-01-05/hour=8/minute=0"], "dt/hour/minute", [0]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "column", "expected"), SPELLED, ids=[case[1] for case in SPELLED]
)
def test_partitions_that_are_the_time(
    tmp_path: Path, paths: list[str], column: str, expected: list[int]
) -> None:
    """Ten days before 2027-01-15 08:00; a file goes when the day, hour or minute in its path has ended by then."""
    columns = TableColumns(time=(column,), zone="UTC")
    events = at(tmp_path, replace(TEN_DAYS, columns=columns))
    for path in paths:
        events.put(f"{path}/a.parquet", {"id": [1], "dt": ["2020-01-01"]})
    assert removed(events.plan()) == [f"{paths[number]}/a.parquet" for number in expected]


def test_a_partition_that_is_no_time_is_refused_by_name(tmp_path: Path) -> None:
    events = at(tmp_path, replace(TEN_DAYS, columns=TableColumns(time=("dt",))))
    for value in ("2027-01-04", "soon"):
        events.put(f"dt={value}/a.parquet", {"id": [1]})
    with pytest.raises(ConfigError, match="dt has the type string, which is no time by itself"):
        events.plan()


def test_files_of_duckdb_and_pandas(tmp_path: Path) -> None:
    """Both write times without a zone, and Hive partitions."""
    columns = TableColumns(time=("at",), zone="UTC")
    events = at(tmp_path, replace(TEN_DAYS, columns=columns))
    events.root.mkdir(parents=True)
    rows = "select i as id, timestamp '2027-01-01' + interval (i) day as at, i // 4 as part from range(16) t(i)"
    duckdb.sql(f"copy ({rows}) to '{events.root}/duck' (format parquet, partition_by (part))")
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(["2027-01-04 00:00:00", "2027-01-05 08:00:00"]).as_unit("ns"),
            "part": [7, 7],
        }
    )
    frame.to_parquet(events.root / "pandas", partition_cols=["part"])
    frame.assign(at=frame["at"] + pd.Timedelta(1, "ns")).to_parquet(events.root / "later.parquet")
    plan = events.plan()
    assert [path.rpartition("/")[0] for path in removed(plan)] == ["duck/part=0", "pandas/part=7"]
    assert plan.by_limit == {"max_age": 6}


@given(table_worlds())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_file_is_removed_if_and_only_if_the_rules_remove_all_of_its_rows(
    world: TableWorld,
) -> None:
    """Equal to the model of a pass over rows; files without bounds have times in INT96."""
    policy = _without_keys(world.policy)
    world = replace(world, policy=policy)
    gone = removed_rows(world)
    with TemporaryDirectory() as folder:
        events = at(Path(folder), policy)
        events.root.mkdir(parents=True)
        for number, rows in enumerate(world.files):
            _write(events, f"{number}.parquet", rows, int96=world.unknown[number])
        plan = plan_table(events.opened, AS_OF_NS, lambda _: LocalEngine())
    whole = {
        f"{number}.parquet": Counter(gone[row.file, row.row] for row in rows)
        for number, rows in enumerate(world.files)
        if rows and all((row.file, row.row) in gone for row in rows)
    }
    assert {each.add["path"]: each.by_limit for each in plan.removals} == whole
    partly = [any((row.file, row.row) in gone for row in rows) for rows in world.files]
    assert plan.passed_over.get("with_rows_that_stay", 0) == sum(partly) - len(whole)


def _without_keys(policy: TablePolicy) -> TablePolicy:
    """The policy with limits that whole files can satisfy, and bytes by rows."""

    def of_files(limits: TableLimits) -> TableLimits:
        return replace(limits, max_rows_per_key=None)

    policies = tuple(replace(each, limits=of_files(each.limits)) for each in policy.policies)
    columns = replace(policy.columns, key=(), size=("size",))
    return TablePolicy(columns, of_files(policy.limits), policies)


def _write(events: Directory, path: str, rows: Sequence[Row], *, int96: bool) -> None:
    table = {
        name: pa.array([getattr(row, name) for row in rows], AT) for name in ("time", "expires_at")
    }
    table |= {"size": pa.array([row.size for row in rows], pa.int64())}
    table |= {
        name: pa.array([getattr(row, name) for row in rows], pa.string())
        for name in ("user", "version", "tenant")
    }
    region = pa.array([row.region for row in rows], pa.string())
    table["at"] = pa.StructArray.from_arrays([region], ["region"])
    events.put(path, table, use_deprecated_int96_timestamps=int96)
