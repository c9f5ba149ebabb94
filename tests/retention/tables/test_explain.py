"""Explanations of rows: they agree with the plan, and after a run with its evidence."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given

from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.delta import snapshot as delta_log
from retention.delta.snapshot import DeltaSnapshot
from retention.engines.local import LocalEngine
from retention.errors import MissingMessageError, StorageError, UsageError
from retention.storage.crash_points import Step, watched_by
from retention.tables.apply import apply_plan
from retention.tables.evidence import read_evidence
from retention.tables.evidence_extent import summary_of
from retention.tables.explain import TableExplanation, explain_key, explain_row
from retention.tables.opened import OpenedTable
from retention.tables.recorded import settle
from retention.tables.removed_rows import removed_rows
from retention.tables.undo import undo_run
from retention.tables.wanted_key import parse_key, wanted_key
from retention.views.table_explanation import (
    evidence_text,
    table_explanation_json,
    table_explanation_text,
)
from tests.retention.tables.worlds import laid, planned
from tests.support.laws import law_on_disk
from tests.support.table_worlds import TableWorld, table_worlds

DAY_NS = 86_400 * 10**9
NOW_NS = 100 * DAY_NS
COLUMNS = TableColumns(time=("at",), key=(("tenant",), ("user",)), expires_at=("until",))


def explained(opened: OpenedTable, key: Mapping[str, Any]) -> TableExplanation:
    wanted = wanted_key("events", opened.policy.columns, key)
    return explain_key(opened, wanted, opened.clock(), lambda size: LocalEngine())


def explained_row(opened: OpenedTable, file: str, row: int) -> TableExplanation:
    return explain_row(opened, file, row, opened.clock(), lambda size: LocalEngine())


@law_on_disk
@given(table_worlds().filter(lambda world: world.rows))
def test_an_explanation_is_what_the_plan_does_and_what_the_evidence_has(world: TableWorld) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened = laid(world, Path(folder))
        plan = planned(opened)
        listed = pa.concat_tables(removed_rows(opened, plan)).to_pylist()
        gone = {(row["file"], row["row"]): row["limit"] for row in listed}
        keys = {(row.user, row.shard) for row in world.rows if row.user and row.shard}
        for user, shard in keys:
            for row in explained(opened, {"user": user, "shard": shard}).rows:
                assert row.limit == gone.get((row.file, row.row))
                assert all(
                    due <= opened.clock() for limit, due in row.due.items() if limit == row.limit
                )
                assert row.limit or all(due > opened.clock() for due in row.due.values())
        run = apply_plan(opened, plan).run
        for user, shard in keys:
            with_key = [r for r in listed if (r["user"], r["shard"]) == (user, shard)]
            try:
                removed = explained(opened, {"user": user, "shard": shard}).removed
            except MissingMessageError:
                removed = ()
            assert {(each.file, each.row): (each.limit, each.time) for each in removed} == {
                (row["file"], row["row"]): (row["limit"], row["time"]) for row in with_key
            }
        if not run:
            return
        for row in listed:
            [removal] = explained_row(opened, row["file"], row["row"]).removed
            assert (removal.run, removal.limit, removal.restored_by) == (run, row["limit"], None)
        undone = undo_run(opened, run).run
        for row in listed:
            [removal] = explained_row(opened, row["file"], row["row"]).removed
            assert removal.restored_by == undone


def events(folder: Path, **options: Any) -> OpenedTable:
    """A table of three files: one old as a whole, one cut, and one young."""
    policy = TablePolicy(
        COLUMNS, TableLimits(max_age_ns=30 * DAY_NS, max_rows_per_key=3, expires=True)
    )
    location, warehouse = str(folder / "events"), folder / "warehouse"
    for ages in ([99, 98], [40, 20], [9, 8, 7]):
        rows = {
            "at": _days(100 - age for age in ages),
            "until": _days([None] * (len(ages) - 1) + [120]),
            "tenant": ["a"] * len(ages),
            "user": pa.array([7] * len(ages), pa.int32()),
        }
        write_deltalake(location, pa.table(rows), mode="append")
    warehouse.mkdir()
    return OpenedTable("events", location, policy, str(warehouse), lambda: NOW_NS, **options)


def _days(days: Any) -> pa.Array:
    micros = [None if day is None else day * DAY_NS // 1000 for day in days]
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))


KEY = {"tenant": "a", "user": "7"}


def test_a_key_is_explained_with_what_goes_and_when_the_rest_will(tmp_path: Path) -> None:
    explanation = explained(events(tmp_path), KEY)
    assert [row.limit for row in explanation.rows] == [
        *["max_age"] * 3, "max_rows_per_key", None, None, None
    ]  # fmt: skip
    ninth = explanation.rows[4]
    assert ninth.due == {"max_age": 121 * DAY_NS}
    assert ninth.newer == {"max_rows_per_key": 1}
    assert explanation.rows[6].due == {"expires_at": 120 * DAY_NS, "max_age": 123 * DAY_NS}
    lines = table_explanation_text(explanation)
    assert lines[0] == (
        "events, tenant=a, user=7: 7 rows, 4 of them removed by a pass as of 1970-04-11T00:00:00Z"
    )
    assert lines[-1].endswith(
        "kept; expires_at removes it at 1970-05-01T00:00:00Z; max_age removes it at 1970-05-04T00:00:00Z; "
        "max_rows_per_key removes it after 3 newer rows of its key"
    )
    [first, *_] = table_explanation_json(explanation)["rows"]
    assert (first["goes"], first["values"]["at"]) == (True, "1970-01-02T00:00:00Z")


def test_only_files_that_may_have_the_key_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {
        "at": _days([99, 99, 99, 99]),
        "until": _days([None] * 4),
        "tenant": ["a", "b", "c", None],
        "user": pa.array([7] * 4, pa.int32()),
    }
    location, warehouse = str(tmp_path / "events"), str(tmp_path / "warehouse")
    write_deltalake(location, pa.table(rows), partition_by=["tenant"])
    policy = TablePolicy(COLUMNS, TableLimits(max_age_ns=30 * DAY_NS))
    opened = OpenedTable("events", location, policy, warehouse, lambda: NOW_NS)
    added: list[int] = []
    add_of = DeltaSnapshot.add_of

    def counting(snapshot: DeltaSnapshot, row: int) -> Any:
        added.append(row)
        return add_of(snapshot, row)

    monkeypatch.setattr(DeltaSnapshot, "add_of", counting)
    [row] = explained(opened, KEY).rows
    assert (row.file.startswith("tenant=a/"), row.values["tenant"], len(added)) == (True, "a", 1)
    [again] = explained_row(opened, row.file, 0).rows
    assert (again, len(added)) == (row, 2)


def test_removed_keys_are_in_the_evidence_also_after_files_are_gone(tmp_path: Path) -> None:
    opened = events(tmp_path)
    plan = planned(opened)
    run = apply_plan(opened, plan).run
    assert [row.limit for row in explained(opened, KEY).removed].count("max_age") == 3
    [dropped] = [each.add["path"] for each in plan.removals if None in each.rows.values()]
    (Path(opened.location) / dropped).unlink()
    removed = explained(opened, KEY).removed
    assert [each.row for each in removed if each.file == dropped] == [None]
    lines = "\n".join(table_explanation_text(explained(opened, KEY)))
    assert (
        "times from 1970-01-02T00:00:00Z to 1970-01-03T00:00:00.001000Z), which is deleted" in lines
    )
    assert evidence_text(summary_of(opened, run)) == (
        "evidence: 2 rows of 1 key; 1 file that went unread, with 2 rows, by the bounds of their times"
    )


def test_the_evidence_opens_no_file_that_goes_whole(tmp_path: Path) -> None:
    opened = events(tmp_path)
    plan = planned(opened)
    [dropped] = [each.add["path"] for each in plan.removals if None in each.rows.values()]
    place = Path(opened.location) / dropped
    place.write_bytes(b"x" * place.stat().st_size)
    run = apply_plan(opened, plan).run
    evidence = read_evidence(opened, run)
    assert evidence is not None
    assert evidence.rows["rows"].to_pylist() == [2, 1, 1]


@pytest.mark.parametrize("form", ["hashed", "none"])
def test_keys_are_recorded_as_configured(tmp_path: Path, form: Any) -> None:
    opened = events(tmp_path, evidence=form)
    run = apply_plan(opened, planned(opened)).run
    removed = explained(opened, KEY).removed
    home = Path(opened.home)
    if form == "none":
        assert explained(opened, KEY).without_evidence == (run,)
        assert (removed, read_evidence(opened, run)) == ((), None)
        return
    assert len(removed) == 4
    evidence = read_evidence(opened, run)
    assert evidence is not None
    assert set(evidence.rows.column_names) & {"tenant", "user"} == set()
    with pytest.raises(MissingMessageError, match="no row has the key b, 7"):
        explained(replace(opened, evidence="keys"), {"tenant": "b", "user": 7})
    (home / "salt").write_bytes(b"another secret")
    assert explained(opened, KEY).without_evidence == (run,)
    (home / "salt").unlink()
    assert explained(opened, KEY).without_evidence == (run,)


def test_a_run_that_did_not_commit_leaves_no_evidence(tmp_path: Path) -> None:
    opened = events(tmp_path)

    def fail(reached: Step) -> None:
        if reached is Step.DELTA_COMMITTING:
            raise StorageError("the disk is gone")

    with watched_by(fail), pytest.raises(StorageError):
        apply_plan(opened, planned(opened))
    settle(opened)
    assert explained(opened, KEY).removed == ()
    assert list((Path(opened.home) / "evidence").iterdir()) == []


def test_a_row_is_found_by_its_file_and_position(tmp_path: Path) -> None:
    opened = events(tmp_path)
    [young] = [
        add["path"]
        for add in map(delta_log.read(opened.location).add_of, range(3))
        if '"numRecords":3' in add["stats"]
    ]
    [row] = explained_row(opened, young, 1).rows
    assert (row.limit, row.newer) == (None, {"max_rows_per_key": 2})
    with pytest.raises(MissingMessageError, match="no live row 3"):
        explained_row(opened, young, 3)


def test_a_key_of_other_columns_or_types_is_refused(tmp_path: Path) -> None:
    opened = events(tmp_path)
    for key, why in {
        "tenant=a": "name exactly the columns of the key",
        "tenant=a,user=7,city=b": "'7,city=b' is no value of it; write one such as 7",
        "tenant=a,user=x": "user is of the type integer, and 'x' is no value",
        "tenant": "is not a key: write COLUMN=VALUE",
    }.items():
        with pytest.raises(UsageError, match=why):
            explained(opened, parse_key(key, COLUMNS))
    keyless = replace(opened, policy=replace(opened.policy, columns=replace(COLUMNS, key=())))
    with pytest.raises(UsageError, match="names no key of this table"):
        explained(keyless, KEY)
