"""A mirror with its own sequences, and our appenders: they may alternate, and nothing is ever duplicated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retention.api.warehouse import Warehouse
from retention.core.outcomes import Outcome
from retention.errors import ForeignRowsError
from retention.ports import Snapshot, Swap
from tests.contract.conftest import Stage
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with
from tests.support.mirrors import mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("delta", "parquet")
LAID = 30
LINE = '{"subject": "a", "data": "ours"}'


@pytest.fixture(params=FORMATS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """Three segments of ten messages, after a pass that found nothing due."""
    begun(tmp_path, request.param)
    return Stage(request.param, tmp_path / "streams" / "ORDERS")


def begun(folder: Path, format_: str) -> Warehouse:
    warehouse = warehouse_with(folder, format_, START + 100 * SECOND, max_msgs=LAID + 5)
    lay(warehouse.new_stream("ORDERS").opened, even_segments(3, LAID // 3))
    (outcome,) = warehouse.apply()
    assert outcome.value is not None
    assert outcome.value.removed_messages == 0
    return warehouse


def reopened(place: Stage) -> Warehouse:
    folder = place.root.parents[1]
    return warehouse_with(folder, place.format, START + 100 * SECOND, max_msgs=LAID + 5)


def on_disk(folder: Path) -> dict[str, bytes]:
    """Every data file, and every entry of a log."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in (folder / "streams").rglob("*")
        if path.suffix == ".parquet" and "messages" in path.parts
        if "_delta_log" not in path.parts
    }


def refused_everywhere(warehouse: Warehouse, folder: Path) -> None:
    """Assert that every command on the stream is refused by name, and nothing changes."""
    before = on_disk(folder)
    version = warehouse.stream("ORDERS").opened.store.snapshot().version
    stream = warehouse.stream("ORDERS")
    asked: list[Any] = [
        lambda: stream.publish([LINE]),
        stream.plan,
        lambda: list(stream.messages()),
        stream.state,
        lambda: stream.explain(31),
    ]
    for ask in asked:
        with pytest.raises(ForeignRowsError, match="sequence"):
            ask()
    outcomes: list[Outcome[Any]] = [*warehouse.apply(), *warehouse.plan()]
    for outcome in outcomes:
        assert outcome.exit_code == 4, outcome.sentence
        assert "ORDERS" in outcome.sentence
    assert on_disk(folder) == before
    assert warehouse.stream("ORDERS").opened.store.snapshot().version == version


def test_they_may_take_turns(place: Stage) -> None:
    for first in (31, 41):
        place.foreign(range(first, first + 9), 21)
        (ack,) = reopened(place).stream("ORDERS").publish([LINE]).acks()
        assert ack.seq == first + 9
    warehouse = reopened(place)
    (outcome,) = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    assert outcome.value.removed_messages == 15
    assert held(warehouse)["seq"].to_pylist() == list(range(16, 51))


def test_a_mirror_that_comes_between_our_look_and_our_commit_comes_first(
    place: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = reopened(place).stream("ORDERS")
    commit = stream.opened.store.commit
    waiting = [lambda: place.foreign(range(31, 36), 21)]

    def late(swap: Swap, snapshot: Snapshot) -> int:
        if waiting:
            waiting.pop()()
        return commit(swap, snapshot)

    monkeypatch.setattr(stream.opened.store, "commit", late)
    acks = list(stream.publish([LINE, LINE]).acks())
    assert [ack.seq for ack in acks] == [36, 37]
    assert held(reopened(place))["seq"].to_pylist() == list(range(1, 38))


@pytest.mark.parametrize("segment", [21, 31])
def test_a_mirror_that_has_not_seen_our_messages_is_refused_by_name(
    place: Stage, tmp_path: Path, segment: int
) -> None:
    reopened(place).stream("ORDERS").publish([LINE] * 3)
    place.foreign(range(31, 36), segment)
    refused_everywhere(reopened(place), tmp_path)


@pytest.mark.thorough
@pytest.mark.spark
def test_a_mirror_on_spark_that_has_not_seen_our_messages_is_refused_by_name(
    tmp_path: Path, spark: SparkSession
) -> None:
    warehouse = begun(tmp_path, "delta")
    warehouse.stream("ORDERS").publish([LINE] * 3)
    mirror(spark, str(tmp_path / "streams/ORDERS/messages"), range(31, 36), 21)
    refused_everywhere(warehouse, tmp_path)
