"""Rows appended by others at every moment, with and without statistics: accepted exactly, or refused by file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.api.warehouse import Warehouse
from retention.errors import ForeignRowsError
from retention.plan.plan import Plan
from retention.storage import crash_points
from retention.storage.crash_points import Step
from retention.stores.layout import is_ours
from tests.contract.streams import foreign_rows
from tests.support.frames import assert_seqs
from tests.support.laying import SECOND, START, File, Laid, held, lay, warehouse_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = os.environ.get("RETENTION_FOREIGN") == "all"
HERE = (*range(1, 18), 19, 20)
"""Messages in segments of five; 18 is missing."""
KEPT = 13
WITHOUT = {"delta.dataSkippingStatsColumns": "msg_id", "delta.dataSkippingNumIndexedCols": "0"}

Write = Callable[[pa.Table], None]
Look = Callable[[Warehouse], list[int]]


def _with_deltalake(table: str, rows: pa.Table) -> None:
    write_deltalake(table, rows, mode="append")


def _with_polars(table: str, rows: pa.Table) -> None:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    frame.write_delta(table, mode="append")


def _with_spark(spark: SparkSession, folder: Path) -> Callable[[str, pa.Table], None]:
    def write(table: str, rows: pa.Table) -> None:
        file = folder / "rows.parquet"
        pq.write_table(rows, file, coerce_timestamps="us")
        for name in ("seq", "subject", "ts_ns", "size", "segment", "partition"):
            if rows[name].null_count:
                spark.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN {name} DROP NOT NULL")
        frame = spark.read.parquet(str(file)).coalesce(1)
        frame.write.format("delta").mode("append").save(table)

    return write


WRITERS = ("deltalake", "polars", "spark")
STATISTICS = ("statistics", "no statistics")


@pytest.fixture
def write(request: pytest.FixtureRequest, table: str, tmp_path: Path) -> Write:
    """Append by one of the programs that write Delta tables."""
    if request.param == "spark":
        return partial(_with_spark(request.getfixturevalue("spark"), tmp_path), table)
    return partial({"deltalake": _with_deltalake, "polars": _with_polars}[request.param], table)


@pytest.fixture
def laid(tmp_path: Path) -> Warehouse:
    warehouse = warehouse_with(tmp_path, "delta", START + 10**6 * SECOND, max_msgs=KEPT)
    files = [
        File(
            base,
            [
                Laid(seq, f"s.{seq % 3}", START + seq * SECOND)
                for seq in HERE
                if base <= seq < base + 5
            ],
        )
        for base in (1, 6, 11, 16)
    ]
    lay(warehouse.new_stream("ORDERS").opened, files)
    return warehouse


@pytest.fixture
def table(request: pytest.FixtureRequest, laid: Warehouse) -> str:
    place = f"{laid.location}/streams/ORDERS/messages"
    if request.param == "no statistics":
        DeltaTable(place).alter.set_table_properties(WITHOUT)
    return place


def _new(seqs: Sequence[Any], segment: Any = 16, **columns: Sequence[Any]) -> pa.Table:
    """Rows of a mirror, with some columns changed."""
    real = [1 if seq is None else seq for seq in seqs]
    rows = foreign_rows(real, 0)
    rows = _set(rows, "ts_ns", [START + seq * SECOND for seq in real])
    for name, values in {"seq": seqs, "segment": [segment] * len(real), **columns}.items():
        rows = _set(rows, name, values)
    return rows


def _set(rows: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    at = rows.schema.get_field_index(name)
    field = rows.schema.field(at)
    nullable = any(value is None for value in values)
    return rows.set_column(at, field.with_nullable(nullable), pa.array(values, field.type))


NEXT = range(21, 26)
RIGHT = {
    "the next sequences": lambda: _new(NEXT),
    "a segment of their own": lambda: _new(NEXT, 21),
    "with gaps": lambda: _new([31, 35, 40]),
    "in falling order": lambda: _new(range(25, 20, -1)),
    "at falling times": lambda: _new(NEXT, ts_ns=[START - n * SECOND for n in range(5)]),
    "below the end, where nothing is": lambda: _new([18]),
    "without time": lambda: _new(NEXT, time=[None] * 5),
    "with another time": lambda: _new(NEXT, time=[7] * 5),
    "without optional values": lambda: _new(NEXT, payload=[None] * 5, marker=[None] * 5),
}
WRONG: dict[str, Callable[[], pa.Table]] = {
    "without seq": lambda: _new([None, 22]),
    "without ts_ns": lambda: _new(NEXT, ts_ns=[None] * 5),
    "without subject": lambda: _new(NEXT, subject=[None] * 5),
    "without size": lambda: _new(NEXT, size=[None] * 5),
    "without segment": lambda: _new(NEXT, None),
    "without partition": lambda: _new(NEXT, partition=[None] * 5),
    "in partition 1": lambda: _new(NEXT, partition=[1] * 5),
    "below the base": lambda: _new([12, 13]),
    "in an older segment": lambda: _new(NEXT, 6),
    "a segment between": lambda: _new([18], 18),
    "live already": lambda: _new([17, 21]),
    "twice in the file": lambda: _new([21, 21]),
    "of negative size": lambda: _new(NEXT, size=[-5] * 5),
    "of negative sequence": lambda: _new([-3], -5),
    "beyond all sequences": lambda: _set(_new([21]), "seq", [2**63 - 2]),
}


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """Acts registered here run once, between the checks and the commit."""
    waiting: list[Callable[[], None]] = []

    def passed(step: Step) -> None:
        if step == Step.DELTA_COMMITTING and waiting:
            waiting.pop()()

    monkeypatch.setattr(crash_points, "_watch", passed)
    yield waiting
    assert not waiting, "the moment never came"


def _planned(warehouse: Warehouse) -> Plan:
    plan = warehouse.plan()[0].value
    assert plan is not None
    return plan


@pytest.fixture
def look(request: pytest.FixtureRequest) -> Look:
    """The common view of all readers, which must agree; Spark only if it runs anyway."""

    def seen(warehouse: Warehouse) -> list[int]:
        table = f"{warehouse.location}/streams/ORDERS/messages"
        seqs = _seqs(table)
        assert held(warehouse)["seq"].to_pylist() == seqs
        if request.node.get_closest_marker("spark"):
            _check_spark(request.getfixturevalue("spark"), table, seqs)
        return [seq for seq in seqs if seq is not None]

    return seen


def _check_spark(spark: SparkSession, table: str, seqs: Sequence[int | None]) -> None:
    """Check that Spark reads the same rows, also if it skips files by statistics of `time`."""
    spark.catalog.clearCache()
    rows = spark.read.format("delta").load(table)
    assert_seqs(rows, [seq for seq in seqs if seq is not None])
    times = rows.select("time").toArrow()["time"]
    assert rows.where("time IS NULL").count() == times.null_count
    old = pc.less(times, pa.scalar(10**12, times.type))
    found = rows.where("time < timestamp_seconds(1000000)").count()
    assert found == (pc.sum(old, min_count=0).as_py() or 0)


def _cases(names: Iterable[str], *often: str) -> list[Any]:
    """Writer, statistics, name and moment; under `make long NAME=foreign`, all of them."""
    simple = [("deltalake", "no statistics")]
    cases = [
        (*how, name, moment)
        for name in names
        for moment in ("before", "between", "during")
        for how in (product(WRITERS, STATISTICS) if ALL and moment == "before" else simple)
        if ALL or moment == "before" or name in often
    ]
    return [
        pytest.param(*case, marks=[pytest.mark.spark] if case[0] == "spark" else [])
        for case in cases
    ]


@pytest.mark.parametrize(
    ("write", "table", "name", "moment"),
    _cases(RIGHT, "the next sequences"),
    indirect=["write", "table"],
)
def test_rows_that_keep_the_rules_are_taken_in(
    look: Look,
    laid: Warehouse,
    write: Write,
    at_commit: list[Callable[[], None]],
    name: str,
    moment: str,
) -> None:
    rows = RIGHT[name]()
    plan = _planned(laid)
    if moment == "during":
        at_commit.append(lambda: write(rows))
    else:
        write(rows)
    [outcome] = laid.apply() if moment == "before" else laid.apply_plans([plan])
    assert outcome.error is None, outcome.error
    every = sorted({*HERE, *rows["seq"].to_pylist()})
    gone = every[:-KEPT] if moment == "before" else list(HERE)[:-KEPT]
    assert look(laid) == [seq for seq in every if seq not in gone]
    # The next pass removes the surplus caused by the rows, and rewrites some of them.
    assert laid.apply()[0].error is None
    assert look(laid) == every[-KEPT:]
    snapshot = laid.stream("ORDERS").opened.store.snapshot()
    assert snapshot.counters.next_seq[0] == every[-1] + 1


@pytest.mark.parametrize(
    ("write", "table", "name", "moment"),
    _cases(WRONG, "live already", "in an older segment", "beyond all sequences"),
    indirect=["write", "table"],
)
def test_rows_that_break_the_rules_are_refused_by_file(
    laid: Warehouse,
    table: str,
    write: Write,
    at_commit: list[Callable[[], None]],
    name: str,
    moment: str,
) -> None:
    rows = WRONG[name]()
    plan = _planned(laid)
    if moment == "during":
        at_commit.append(lambda: _try(write, rows))
        error = laid.apply_plans([plan])[0].error
    else:
        _try(write, rows)
        error = laid.apply_plans([plan])[0].error if moment == "between" else None
    theirs = [uri for uri in DeltaTable(table).file_uris() if not is_ours(uri)]
    live = _seqs(table)
    if moment != "before" and error is None:
        # The plan is applied exactly; the next plan refuses the rows.
        assert not {*live} & {*HERE[:-KEPT]} - {*rows["seq"].to_pylist()}
    for act in (laid.plan, laid.apply):
        refused = act()[0].error
        if not theirs:
            assert refused is None  # The table's NOT NULL constraint rejected them.
            continue
        assert isinstance(refused, ForeignRowsError), refused
        assert any(Path(uri).name in str(refused) for uri in DeltaTable(table).file_uris())
    if theirs:
        assert _seqs(table) == live


def _try(write: Write, rows: pa.Table) -> None:
    required = ("partition", "segment", "seq", "subject", "ts_ns", "size")
    may_be_refused = any(rows[name].null_count for name in required)
    with suppress(Exception) if may_be_refused else nullcontext():
        write(rows)


def _seqs(table: str) -> list[int | None]:
    found: list[int | None] = pl.scan_delta(table).select("seq").collect()["seq"].to_list()
    return sorted(found, key=lambda seq: -1 if seq is None else seq)
