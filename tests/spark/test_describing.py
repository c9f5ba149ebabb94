"""Files without statistics: tasks read them, and cache the statistics, on any engine."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse
from retention.engine_port import Engine
from retention.engines.local import LocalEngine
from retention.engines.select import EngineName
from retention.engines.spark.engine import SparkEngine
from retention.errors import DamagedError
from retention.plan.plan import Plan
from retention.schemas.files import FILE_STATS
from retention.stores import describing
from retention.stores.describing import describe_files
from retention.stores.sidecar.stats_cache import StatisticsCache
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with

FILES = 25
ENGINES: tuple[EngineName, ...] = ("local", "spark")
CLASSES: dict[str, type[Engine]] = {"local": LocalEngine, "spark": SparkEngine}


@pytest.fixture
def laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Warehouse]:
    """A function that makes a warehouse for an engine, with lost statistics of its files."""
    monkeypatch.setattr(describing, "PART_FILES", 10)
    folder = tmp_path / "w"
    first = warehouse_with(folder, "delta", START + 10**6 * SECOND, max_msgs=33)
    lay(first.stream("ORDERS").opened, even_segments(FILES, 10))

    def losing(engine: str) -> Warehouse:
        name: EngineName = "spark" if engine == "spark" else "local"
        for kept in ("stats", "ledger"):
            shutil.rmtree(folder / "streams/ORDERS/_retention" / kept, ignore_errors=True)
        return warehouse_with(folder, "delta", START + 10**6 * SECOND, name, max_msgs=33)

    return losing


def planned(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, engine: str
) -> tuple[Plan, list[Any]]:
    """A plan, and the results of describing tasks returned to this process."""
    given: list[Any] = []
    run = CLASSES[engine].map

    def mapped(
        self: Engine, function: Callable[[Any], Any], tasks: Sequence[Any], weights: Sequence[int]
    ) -> list[Any]:
        results = run(self, function, tasks, weights)
        given.extend(results if function is describe_files else [])
        return results

    with monkeypatch.context() as patched:
        patched.setattr(CLASSES[engine], "map", mapped)
        return warehouse.stream("ORDERS").plan().plan, given


@pytest.mark.spark
def test_every_engine_describes_files_by_tasks(
    spark: object, laid: Callable[[str], Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = set()
    for engine in ENGINES:
        warehouse = laid(engine)
        plan, given = planned(warehouse, monkeypatch, engine)
        assert [part.read.files for part in given] == [10, 10, 5]
        assert not any(part.rows.num_rows for part in given), "statistics do not come back"
        assert plan.header.read.files == FILES + 1, "the one with the cut is read by row, too"
        again, given = planned(warehouse, monkeypatch, engine)
        assert (given, again.header.read.files) == ([], 1)
        ids |= {plan.plan_id, again.plan_id}
    assert len(ids) == 1


def test_what_comes_back_is_as_long_for_many_files_as_for_few(
    laid: Callable[[str], Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, given = planned(laid("local"), monkeypatch, "local")
    nothing = pickle.dumps(FILE_STATS.empty_table())
    assert [len(pickle.dumps(part.rows)) for part in given] == [len(nothing)] * 3


@pytest.mark.spark
def test_a_damaged_file_is_told_by_a_task_as_by_this_process(
    spark: object, laid: Callable[[str], Warehouse], tmp_path: Path
) -> None:
    file = next((tmp_path / "w").rglob("messages/*/segment=51/*.parquet"))
    file.write_bytes(bytes(len(file.read_bytes())))
    told = []
    for engine in ENGINES:
        with pytest.raises(DamagedError) as caught:
            laid(engine).stream("ORDERS").plan()
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert str(file) in told[0]


def test_where_nothing_can_be_kept_statistics_come_back(
    laid: Callable[[str], Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = laid("local").stream("ORDERS").plan().plan
    warehouse = laid("local")
    monkeypatch.setattr(StatisticsCache, "add", lambda *_: False)
    plan, given = planned(warehouse, monkeypatch, "local")
    assert [part.rows.num_rows for part in given] == [10, 10, 5]
    assert plan.plan_id == kept.plan_id
