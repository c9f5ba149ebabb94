"""Erasures of rows of tables in place: ours at once, the owner's by his commands, judged by a stranger's script."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from retention.api.table import Table
from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import RefusedError, UsageError, VerificationError
from retention.inspect.measures import measure_table
from retention.storage.crash_points import Step, watched_by
from retention.tables import erasure_run
from retention.tables.erasures import erasures_of
from retention.views.text_table import table_lag_text
from tests.support.command_line import invoke
from tests.support.strangers_search import hiding_places

PARTS = 9
EVE, BOB = "eve-4f0c2b7d9a31", "bob-88d1c5e07f42"
ADDRESS = "eve-lane 5b21d9e0c4f7"
TOKENS = [EVE.encode(), ADDRESS.encode()]
NOW = datetime(2026, 6, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "id": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "about": pa.struct({"address": pa.string()}),
    }
)


class World:
    """A table of an owner with rows of a person, on which passes ran."""

    def __init__(self, folder: Path, *, vectors: bool = False, **settings: Any) -> None:
        self.folder, self.location = folder, str(folder / "lake" / "events")
        self.vectors, self.ids = vectors, 0
        self.now = int(NOW.timestamp()) * 10**9
        (folder / "warehouse").mkdir(parents=True)
        table = {
            "name": "events",
            "location": self.location,
            "time": "at",
            "key": "user",
            "max_age": "100d",
            **settings,
        }
        config = {"warehouse": str(folder / "warehouse"), "tables": [table]}
        (folder / "retention.yaml").write_text(json.dumps(config))
        for _ in range(3):
            self.append(EVE, BOB)

    def clock(self) -> int:
        self.now += 10**9
        return self.now

    @property
    def warehouse(self) -> Warehouse:
        return open_warehouse(self.folder / "retention.yaml", engine="local", clock=self.clock)

    @property
    def table(self) -> Table:
        return self.warehouse.table("events")

    def append(self, *users: str) -> None:
        """Append a file with ten rows of each user, of which one is old."""
        rows = []
        for user in users:
            address = ADDRESS if user == EVE else "elsewhere"
            for days in (120, *range(1, 10)):
                self.ids += 1
                at = NOW - timedelta(days=days)
                rows.append({"user": user, "id": self.ids, "at": at, "about": {"address": address}})
        write_deltalake(
            self.location,
            pa.Table.from_pylist(rows, SCHEMA),
            mode="append",
            configuration={"delta.enableDeletionVectors": str(self.vectors).lower()},
        )

    def users(self) -> list[str]:
        return sorted(pl.scan_delta(self.location).collect()["user"].to_list())

    def clean(self) -> None:
        """Do what the report asks the owner to do."""
        table = DeltaTable(self.location)
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)
        now = "interval 0 seconds"
        table.alter.set_table_properties(
            {"delta.logRetentionDuration": now, "delta.deletedFileRetentionDuration": now}
        )
        table.create_checkpoint()
        table.cleanup_metadata()

    def left(self, place: str = "") -> set[str]:
        return {path for path, _ in hiding_places(str(self.folder / place), TOKENS)}


def lived_in(folder: Path, *, vectors: bool = False, **settings: Any) -> World:
    world = World(folder, vectors=vectors, **settings)
    hold = world.warehouse.hold("events", key={"user": EVE}, reason=f"case of {EVE}")
    world.warehouse.release_hold(hold.id, reason="closed")
    world.table.apply()
    return world


VECTORS = pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])


@VECTORS
def test_nothing_is_left_after_the_owner_has_done_what_the_report_lists(
    tmp_path: Path, vectors: bool
) -> None:
    world = lived_in(tmp_path, vectors=vectors)
    assert world.left("warehouse")
    [passed] = [record.run for record in world.table.runs()]
    report = world.table.erase({"user": EVE}, reason=f"request 7 of {EVE}").apply()
    assert world.users() == [BOB] * 27
    assert world.left("warehouse") == set()
    assert not report.is_done
    assert {Path(trace.location).relative_to(tmp_path).as_posix() for trace in report.traces} == (
        world.left()
    )
    assert f"VACUUM delta.`{world.location}` RETAIN 0 HOURS" in repr(report)
    assert "cleanup_metadata" in repr(report)
    state = world.table.state()
    assert "; 1 unfinished erasure" in table_lag_text(state)
    assert [each["id"] for each in state.as_json()["unfinished_erasures"]] == [report.record.id]
    assert measure_table(world.table.opened, world.clock()).unfinished_erasures == 1
    assert report.record.lost_undos == [passed]
    for run in (passed, str(report.run)):
        with pytest.raises((RefusedError, UsageError)):
            world.warehouse.undo(run)
    world.clean()
    [report] = world.table.resume_erasures()
    assert report.is_done, report
    assert world.left() == set()
    assert world.users() == [BOB] * 27
    assert EVE not in json.dumps(report.as_json())
    assert "removed 3" in repr(world.table.explain({"user": EVE})) or world.table.history()
    assert [each.status for each in world.table.runs()] == ["done"] * 2
    [place] = tmp_path.glob("warehouse/**/erasures/*.report.json")
    place.unlink()
    assert "erasures" in [damage.check for damage in world.table.verify().damages]


def test_while_the_owner_has_to_do_something_no_row_that_stays_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lived_in(tmp_path)
    report = world.table.erase({"user": EVE}, reason="request 7").apply()
    world.append(BOB)
    with monkeypatch.context() as patch:
        patch.setattr(erasure_run, "live_texts", lambda snapshot: 1 // 0)
        [again] = world.table.resume_erasures()
        assert again.record.traces == report.record.traces
        world.clean()
        with pytest.raises(ZeroDivisionError):
            world.table.resume_erasures()
    [report] = world.table.resume_erasures()
    assert report.is_done
    assert world.table.state().as_json().get("unfinished_erasures") is None


@VECTORS
def test_a_row_that_only_a_vector_hides_is_gone(tmp_path: Path, vectors: bool) -> None:
    world = lived_in(tmp_path, vectors=vectors)
    before = DeltaTable(world.location).version()
    world.table.erase({"user": EVE, "id": 1}, reason="request 7").apply()
    assert len(world.users()) == 54
    # Row 1 is one of those that the pass removed: only with a vector it is in a live file.
    assert DeltaTable(world.location).version() == before + vectors


def test_a_legal_hold_wins(tmp_path: Path) -> None:
    world = World(tmp_path)
    hold = world.warehouse.hold(
        "events", key={"user": EVE, "id": "2"}, reason="case 12", owner="J. Doe"
    )
    with pytest.raises(RefusedError, match=f"{hold.id} of J. Doe .case 12. keeps rows"):
        world.table.erase({"user": EVE}, reason="request 7")
    assert len(world.users()) == 60
    world.table.erase({"user": EVE, "id": 3}, reason="request 7").apply()
    assert len(world.users()) == 59
    world.warehouse.release_hold(hold.id, reason="closed")
    world.table.erase({"user": EVE}, reason="request 7").apply()
    assert world.users() == [BOB] * 30


def test_a_hold_that_is_placed_before_the_commit_wins(tmp_path: Path) -> None:
    world = World(tmp_path)
    holds: list[object] = []

    def place(step: Step) -> None:
        if step == Step.COPY_WRITTEN and not holds:
            holds.append(world.warehouse.hold("events", key={"user": EVE}, reason="case 12"))

    planned = world.table.erase({"user": EVE}, reason="request 7")
    with watched_by(place), pytest.raises(RefusedError, match="case 12"):
        planned.apply()
    assert len(world.users()) == 60


def test_a_hold_of_other_rows_in_the_same_files_stops_no_erasure(tmp_path: Path) -> None:
    world = lived_in(tmp_path)
    world.warehouse.hold("events", key={"user": BOB}, reason="case 12")
    world.table.erase({"user": EVE}, reason="request 7").apply()
    assert world.users() == [BOB] * 27
    assert world.left("warehouse") == set()


def test_a_hold_that_comes_after_the_commit_keeps_files_and_is_told_apart(tmp_path: Path) -> None:
    world = lived_in(tmp_path)
    # The files that the pass wrote are no longer in the table.
    DeltaTable(world.location).optimize.compact()
    holds: list[Any] = []

    def place(step: Step) -> None:
        if step == Step.TABLE_COMMITTED and not holds:
            holds.append(world.warehouse.hold("events", key={"user": EVE}, reason="case 12"))

    planned = world.table.erase({"user": EVE}, reason="request 7")
    with (
        watched_by(place),
        pytest.raises(RefusedError, match=r"its live rows are removed, .* kept"),
    ):
        planned.apply()
    assert world.users() == [BOB] * 27
    [unfinished] = world.table.erasures()
    assert not unfinished.is_done
    world.warehouse.release_hold(holds[0].id, reason="closed")
    world.table.resume_erasures()
    assert world.left("warehouse") == set()


def test_a_directory_and_wrong_requests_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    for keys, reason in (({"user": EVE}, " "), ([], "x"), ({"nobody": 1}, "x"), ({"id": "a"}, "x")):
        with pytest.raises(UsageError):
            world.table.erase(keys, reason=reason)
    other = World(tmp_path / "other", format="parquet")
    with pytest.raises(RefusedError, match="directory of Parquet files"):
        other.table.erase({"user": EVE}, reason="request 7")


def test_others_may_read_append_and_optimize_meanwhile(tmp_path: Path) -> None:
    world = lived_in(tmp_path)
    reader = DeltaTable(world.location)
    acts: list[Callable[[], object]] = [
        DeltaTable(world.location).optimize.compact,
        lambda: world.append(EVE),
    ]

    def meanwhile(step: Step) -> None:
        if step == Step.TABLE_COMMITTING and acts:
            acts.pop(0)()

    planned = world.table.erase({"user": EVE}, reason="request 7")
    with watched_by(meanwhile):
        report = planned.apply()
    assert not acts
    assert report.run is not None
    assert world.users() == [BOB] * 27 + [EVE] * 10
    assert reader.to_pyarrow_table().num_rows == 54
    world.clean()
    [report] = world.table.resume_erasures()
    # The strings of rows that came later are theirs.
    assert report.is_done
    assert report.shared > 0
    assert world.users() == [BOB] * 27 + [EVE] * 10


def test_what_the_owner_restores_is_noticed(tmp_path: Path) -> None:
    world = lived_in(tmp_path)
    version = DeltaTable(world.location).version()
    world.table.erase({"user": EVE}, reason="request 7").apply()
    DeltaTable(world.location).restore(version)
    with pytest.raises(VerificationError, match="which others restored"):
        world.table.resume_erasures()
    world.table.erase({"user": EVE}, reason="request 8").apply()
    world.clean()
    assert all(report.is_done for report in world.table.resume_erasures())
    assert not world.left("warehouse")


@pytest.mark.parametrize(
    "step", ["_commit", "hash_evidence", "erase_changes", "erase_arguments", "conceal_holds"]
)
def test_a_step_that_is_left_out_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    world = lived_in(tmp_path)
    monkeypatch.setattr(erasure_run, step, lambda *_, **__: None)
    planned = world.table.erase({"user": EVE}, reason=f"request of {EVE}")
    if step == "_commit":
        with pytest.raises(VerificationError, match="never removed"):
            planned.apply()
    else:
        planned.apply()
        world.clean()
        world.table.resume_erasures()
    assert world.left("warehouse" if step != "_commit" else "") or step == "erase_arguments"
    assert not all(report.is_done for report in world.table.erasures()) or step == "erase_arguments"
    monkeypatch.undo()
    world.table.resume_erasures()
    world.clean()
    [report] = world.table.resume_erasures() or world.table.erasures()
    assert report.is_done
    assert world.left() == set()


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("part", range(PARTS))
def test_an_erasure_that_is_killed_at_any_step_goes_on(tmp_path: Path, part: int) -> None:
    steps: list[Step] = []
    calm = lived_in(tmp_path / "calm")
    with watched_by(steps.append):
        calm.table.erase({"user": EVE}, reason="request 7").apply()
    assert len(steps) > PARTS
    for number in range(part, len(steps), PARTS):
        world = lived_in(tmp_path / f"{number}")
        with pytest.raises(Killed), watched_by(_killer(number)):
            world.table.erase({"user": EVE}, reason="request 7").apply()
        world.table.erase({"user": EVE}, reason="request 7").apply()
        assert world.users() == [BOB] * 27, steps[number]
        assert world.left("warehouse") == set(), steps[number]
        world.clean()
        world.table.resume_erasures()
        [report] = world.table.erasures()
        assert report.is_done, steps[number]
        assert world.left() == set(), steps[number]


def _killer(number: int) -> Callable[[Step], None]:
    """A watcher that raises at a step, and at every later one."""
    left = iter(range(number))

    def kill(_: Step) -> None:
        if next(left, None) is None:
            raise Killed

    return kill


def test_the_command_takes_keys_and_files_of_keys(tmp_path: Path) -> None:
    world = World(tmp_path)
    arguments = ["--config", str(tmp_path / "retention.yaml"), "erase", "events"]
    looked = invoke([*arguments, "--key", f"user={EVE},id=1", "--reason", "request 7", "--dry-run"])
    assert looked.exit_code == 0, looked.output
    assert "would erase 1 live row" in looked.output
    given = tmp_path.parent / f"{tmp_path.name}.jsonl"
    given.write_text(json.dumps({"user": EVE}) + "\n" + json.dumps({"user": BOB, "id": 11}) + "\n")
    done = invoke([*arguments, "--from-file", str(given), "--reason", "request 7", "--yes"])
    assert done.exit_code == 6
    assert "erased 31 live rows" in done.output
    assert world.users() == [BOB] * 29
    listed = invoke(["--config", str(tmp_path / "retention.yaml"), "erase", "--status"])
    assert "events" in listed.output
    assert "unfinished" in listed.output
    state = invoke(["--config", str(tmp_path / "retention.yaml"), "state", "events"])
    assert "1 unfinished erasure" in state.output
    assert len(world.table.state().as_json()["unfinished_erasures"]) == 1
    assert measure_table(world.table.opened, 0).unfinished_erasures == 1
    world.clean()
    world.table.apply()
    assert world.table.state().erasures == ()
    assert [report.is_done for report in world.table.erasures()] == [True]
    assert invoke([*arguments, "--resume"]).exit_code == 0
    for wrong in (["--seq", "1"], ["--key", "nobody=1"], []):
        assert invoke([*arguments, *wrong, "--reason", "x", "--yes"]).exit_code == 2


def test_an_erasure_leaves_its_request_nowhere(tmp_path: Path) -> None:
    world = lived_in(tmp_path)
    world.table.erase({"user": EVE}, reason=f"request of {EVE}").apply()
    [record] = erasures_of(world.table.opened).all()
    assert record.key is not None
    assert world.left("warehouse") == set()


def _with_former_copies(world: World) -> None:
    """An erasure of one person writes the files anew, and their owner compacts them: our copies are no longer live."""
    world.append("ann-17c09d4e2b63", EVE, BOB)
    world.table.erase({"user": "ann-17c09d4e2b63"}, reason="request 6").apply()
    DeltaTable(world.location).optimize.compact()


@VECTORS
def test_copies_of_held_rows_that_are_live_are_deleted(tmp_path: Path, vectors: bool) -> None:
    world = World(tmp_path, vectors=vectors)
    _with_former_copies(world)
    ours = world.left("lake")
    world.warehouse.hold("events", key={"user": BOB}, reason="case 12")
    report = world.table.erase({"user": EVE}, reason="request 7").apply()
    assert world.users() == [BOB] * 40
    assert len(report.record.deleted) == 1
    assert world.left("lake") < ours
    world.clean()
    assert all(each.is_done for each in world.table.resume_erasures())
    assert world.left() == set()


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete(f"user = '{BOB}' AND id = 85"),
        lambda table: table.update({"id": "1085"}, predicate=f"user = '{BOB}' AND id = 85"),
        lambda table: table.update(
            {"about": "named_struct('address', 'moved')"}, predicate=f"user = '{BOB}'"
        ),
    ],
    ids=["deleted", "changed", "changed within"],
)
def test_the_only_copy_of_a_held_row_is_kept(
    tmp_path: Path, change: Callable[[DeltaTable], object]
) -> None:
    """A row of another content, even in one column, is no copy."""
    world = World(tmp_path)
    _with_former_copies(world)
    change(DeltaTable(world.location))
    hold = world.warehouse.hold("events", key={"user": BOB}, reason="case 12", owner="J. Doe")
    before = world.users()
    with pytest.raises(RefusedError, match=f"{hold.id} of J. Doe .case 12. keeps .* only copy"):
        world.table.erase({"user": EVE}, reason="request 7")
    assert world.users() == before
    world.warehouse.release_hold(hold.id, reason="closed")
    world.table.erase({"user": EVE}, reason="request 7").apply()
    assert EVE not in world.users()


def test_equal_rows_are_copies_of_as_many_rows(tmp_path: Path) -> None:
    """Of two held rows that are equal in every column, one is live: the other one may be lost with its file."""
    world = World(tmp_path)
    world.append("ann-17c09d4e2b63", EVE)
    row = {"user": BOB, "id": 999, "at": NOW, "about": {"address": "elsewhere"}}
    twice = pa.Table.from_pylist([row, row, {**row, "user": EVE}, {**row, "user": "ann"}], SCHEMA)
    write_deltalake(world.location, twice, mode="append")
    world.table.erase({"user": "ann"}, reason="request 6").apply()
    table = DeltaTable(world.location)
    table.delete("id = 999")
    write_deltalake(world.location, twice.slice(1, 2), mode="append")
    world.warehouse.hold("events", key={"user": BOB, "id": 999}, reason="case 12")
    with pytest.raises(RefusedError, match="only copy"):
        world.table.erase({"user": EVE}, reason="request 7")
    write_deltalake(world.location, twice.slice(0, 1), mode="append")
    world.table.erase({"user": EVE}, reason="request 7").apply()
    assert EVE not in world.users()


def test_a_column_that_came_later_makes_no_other_row(tmp_path: Path) -> None:
    """A column without a value is no difference; one that the table no longer has is."""
    world = World(tmp_path)
    _with_former_copies(world)
    table = DeltaTable(world.location)
    table.alter.add_columns([Field("note", PrimitiveType("string"))])
    table.optimize.z_order(["user"])
    world.warehouse.hold("events", key={"user": BOB}, reason="case 12")
    world.table.erase({"user": EVE}, reason="request 7").apply()
    assert world.users() == [BOB] * 40
