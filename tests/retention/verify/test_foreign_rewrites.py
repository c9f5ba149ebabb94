"""What other programs do to a stream or a table is told apart from damage, also while a verification runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.api.table import Table
from retention.verify import tables
from retention.verify.finding import Damage
from tests.retention.api.test_table import NOW
from tests.retention.api.test_table import warehouse as warehouse_of_table
from tests.retention.verify.test_damages import Planted, flip
from tests.support.sandboxes import configured, lines


def stream_with_vectors(folder: Path) -> Planted:
    """A Delta stream of several files in a segment, with a pass and deleted messages under vectors."""
    orders = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 80, "vectors": True}
    configured(folder, orders, format="delta")
    planted = Planted(folder, "delta")
    stream = planted.warehouse.new_stream("ORDERS")
    for _ in range(5):
        stream.publish(lines(20))
    stream.plan().apply()
    stream.delete(40, 41, 77).apply()
    assert planted.verify().verdict == "ok"
    return planted


def assert_rewritten_and_not_damaged(planted: Planted, act: str) -> None:
    """Verify after another program's rewrite; record digests; then find a flip, and its repair."""
    result = planted.verify()
    assert (result.verdict, result.damages) == ("unverified", ())
    version = int(planted.entries[-1].stem)
    reasons = {each.reason for each in result.unverified}
    assert len(reasons) == 1, reasons
    assert "written by another program" in min(reasons)
    assert act in min(reasons)
    assert f"version {version}" in min(reasons)
    recorded = planted.warehouse.stream("ORDERS").verify(record=True)
    assert (recorded.recorded, recorded.verdict) == (len(result.unverified), "ok")
    assert planted.verify().verdict == "ok"
    name = result.unverified[0].subject
    flip(Path(name), 60)
    assert [each.check for each in planted.verify().damages] == ["content"]
    flip(Path(name), 60)
    assert planted.verify().verdict == "ok"


def test_a_compacted_stream_is_unverified_until_its_digests_are_recorded(tmp_path: Path) -> None:
    planted = stream_with_vectors(tmp_path)
    stored = DeltaTable(planted.root / "messages")
    stored.optimize.z_order(["seq"])
    assert_rewritten_and_not_damaged(planted, "OPTIMIZE")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table in place of which a pass wrote a file."""
    table = warehouse_of_table(tmp_path).table("events")
    table.plan().apply()
    result = table.verify()
    assert (result.verdict, result.read_files) == ("ok", 1)
    return table


def _append(location: str) -> None:
    rows = pa.table({"at": pa.array([NOW // 10**9], pa.int64())})
    write_deltalake(location, rows, mode="append")


def _rewrite(location: str) -> None:
    stored = DeltaTable(location)
    write_deltalake(location, stored.to_pyarrow_table(), mode="overwrite")
    DeltaTable(location).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def _create_anew(location: str) -> None:
    rows = DeltaTable(location).to_pyarrow_table()
    for file in sorted(Path(location).rglob("*"), reverse=True):
        if file.is_file():
            file.unlink()
    write_deltalake(location, rows)


@pytest.mark.parametrize("act", [_append, _rewrite, _create_anew])
def test_what_an_owner_does_between_verifications_is_no_damage(
    table: Table, act: Callable[[str], None]
) -> None:
    act(table.opened.location)
    result = table.verify()
    assert (result.verdict, result.damages) == ("ok", ())
    assert result.read_files == (act is _append), "only the copy of a run has a digest"


@pytest.mark.parametrize("act", [_append, _rewrite])
def test_what_an_owner_does_during_a_verification_is_no_damage(
    table: Table, act: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [act, act]

    def meanwhile(about: Any) -> Iterator[Damage]:
        if times:
            times.pop()(about.table.location)
        yield from ()

    monkeypatch.setattr(tables, "TABLE_CHECKS", [("size", meanwhile), *tables.TABLE_CHECKS])
    result = table.verify()
    assert (result.verdict, result.damages) == ("ok", ())
    assert bool(times) == (act is _append), "an append leaves nothing to look for again"


def test_a_missing_file_stays_a_damage_when_an_owner_appends(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = DeltaTable(table.opened.location).file_uris()
    Path(path).unlink()

    def meanwhile(about: Any) -> Iterator[Damage]:
        _append(about.table.location)
        yield from ()

    monkeypatch.setattr(tables, "TABLE_CHECKS", [("size", meanwhile), *tables.TABLE_CHECKS])
    assert [each.check for each in table.verify().damages] == ["size"]
