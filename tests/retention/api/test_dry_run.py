"""Calls that delete, merge or repair show their effect, and take effect when applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention.api.dry_run import DryRun
from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import UsageError
from tests.support.reclaiming import emptied
from tests.support.sandboxes import NOW, ORDERS, lines, opened
from tests.support.trees import tree

RULES = ORDERS | {"max_msgs": 10, "grace": "0s", "compact": {"min_files": 2}}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """Three small files to merge, and one that a pass has removed."""
    warehouse = opened(tmp_path, RULES)
    for first in range(4):
        warehouse.stream("ORDERS").publish(lines(4, first_ns=NOW - 10_000_000 + first))
    return warehouse


def test_a_stream_shows_its_merges_and_makes_them_when_applied(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    orders = warehouse.stream("ORDERS")
    before = tree(tmp_path)
    merging = orders.compact()
    assert repr(merging).splitlines()[0] == (
        "ORDERS: 1 merge would save 3 files of 4, rewriting "
        f"{repr(merging).splitlines()[0].rpartition('rewriting ')[2]}"
    )
    assert repr(merging).endswith("dry run: apply() does it")
    assert merging.plan.files_saved == 3
    assert tree(tmp_path) == before
    assert merging.apply().files_after == 1
    assert orders.compact().plan.merges == ()


def test_a_stream_shows_its_dead_files_and_deletes_them_when_applied(tmp_path: Path) -> None:
    emptied(tmp_path, "parquet")
    orders = open_warehouse(tmp_path / "retention.yaml", engine="local").stream("ORDERS")
    before = tree(tmp_path)
    reclaiming = orders.reclaim()
    assert (
        repr(reclaiming)
        .splitlines()[1]
        .startswith("  would delete: removed by runs whose grace period is over: 3 files")
    )
    assert repr(reclaiming).endswith("dry run: apply() does it")
    assert tree(tmp_path) == before
    assert reclaiming.apply().total == reclaiming.plan.total
    assert not orders.reclaim().plan.going


def test_a_warehouse_shows_all_its_streams_and_looks_when_it_is_asked(
    warehouse: Warehouse,
) -> None:
    watched: list[str] = []
    merging = warehouse.compact(watch=lambda outcome: watched.append(outcome.stream))
    assert watched == []
    assert repr(merging).startswith("ORDERS: 1 merge would save 3 files of 4")
    [outcome] = merging.apply()
    assert outcome.value is not None
    assert outcome.value.merges == 1
    assert watched == ["ORDERS", "ORDERS"]
    with pytest.raises(UsageError, match="matches none"):
        warehouse.reclaim(["NO*"])


def test_the_error_of_one_stream_is_its_line(warehouse: Warehouse, tmp_path: Path) -> None:
    for entry in (tmp_path / "streams" / "ORDERS" / "_retention" / "log").iterdir():
        entry.write_bytes(b"{")
    [outcome] = warehouse.reclaim().plan
    assert outcome.error is not None
    assert outcome.sentence in repr(warehouse.reclaim())
    with pytest.raises(type(outcome.error)):
        warehouse.stream("ORDERS").reclaim()


def test_repairs_are_dry(warehouse: Warehouse, tmp_path: Path) -> None:
    orders = warehouse.stream("ORDERS")
    repairs: tuple[DryRun[object, object], ...] = (
        orders.repair_wrong_clock(),  # type: ignore[assignment]
        orders.repair_impossible_sequences(),
        orders.repair_foreign_files(),
        orders.reclaim_leftovers(),
    )
    before = tree(tmp_path)
    for repair in repairs:
        assert repr(repair).startswith("ORDERS: ")
        assert "nothing" in repr(repair)
    assert tree(tmp_path) == before
