"""A real Spark with Delta changes our tables at every moment: the result is exact, or a refusal by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from retention.api.warehouse import Warehouse
from retention.errors import ForeignRowsError, RefusedError, RetentionError
from retention.plan.plan import Plan
from retention.storage import crash_points
from retention.storage.crash_points import Step
from tests.contract.conftest import Stage
from tests.contract.streams import append, sequences
from tests.support.frames import assert_seqs
from tests.support.laying import (
    SECOND,
    START,
    File,
    Laid,
    even_segments,
    held,
    lay,
    warehouse_with,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ALL = os.environ.get("RETENTION_FOREIGN") == "all"


@pytest.fixture
def place(tmp_path: Path) -> Stage:
    made = Stage("delta", tmp_path / "streams" / "ORDERS")
    made.open().create()
    return made


@dataclass(frozen=True)
class Hand:
    """A change of the table by another program, and its effect on an earlier plan."""

    statements: tuple[str, ...]
    leaves: Callable[[set[int]], set[int]]
    """The function from the sequences before to the remaining ones."""
    touches_pinned: bool
    """Whether it rewrites files of the plan."""


def _same(before: set[int]) -> set[int]:
    return before


VECTORS = "ALTER TABLE {t} SET TBLPROPERTIES (delta.enableDeletionVectors = true)"
HANDS = {
    "delete": Hand(("DELETE FROM {t} WHERE seq = 8",), lambda s: s - {8}, touches_pinned=True),
    "delete elsewhere": Hand(
        ("DELETE FROM {t} WHERE seq > 15",), lambda s: s - {*range(16, 21)}, touches_pinned=False
    ),
    "delete with vectors": Hand(
        (VECTORS, "DELETE FROM {t} WHERE seq = 8"),
        lambda s: s - {8},
        touches_pinned=True,
    ),
    "update": Hand(
        ("UPDATE {t} SET payload = cast('new' as binary) WHERE seq = 8",),
        _same,
        touches_pinned=True,
    ),
    "merge": Hand(
        (
            "MERGE INTO {t} a USING (SELECT bigint(8) AS seq) b ON a.seq = b.seq WHEN MATCHED THEN DELETE",
        ),
        lambda s: s - {8},
        touches_pinned=True,
    ),
    "optimize": Hand(("OPTIMIZE {t}",), _same, touches_pinned=True),
    "zorder": Hand(("OPTIMIZE {t} ZORDER BY (ts_ns)",), _same, touches_pinned=True),
    "vacuum": Hand(("VACUUM {t}",), _same, touches_pinned=False),
    "restore": Hand(("RESTORE TABLE {t} TO VERSION AS OF 1",), _same, touches_pinned=False),
    "clone": Hand(("CREATE TABLE delta.`{c}` SHALLOW CLONE {t}",), _same, touches_pinned=False),
}
MOMENTS = ("before", "between", "during")
FEW = [
    ("delete", "before"),
    ("optimize", "between"),
    ("delete with vectors", "during"),
    ("vacuum", "during"),
]


@pytest.fixture
def laid(tmp_path: Path) -> Warehouse:
    """Messages 1 to 20 in segments of 5, the second in two files; the limit is 13."""
    warehouse = warehouse_with(tmp_path, "delta", START + 10**6 * SECOND, max_msgs=13)
    cuts = [(1, 1, 6), (6, 6, 9), (6, 9, 11), (11, 11, 16), (16, 16, 21)]
    files = [
        File(base, [Laid(seq, f"s.{seq % 3}", START + seq * SECOND) for seq in range(low, high)])
        for base, low, high in cuts
    ]
    lay(warehouse.new_stream("ORDERS").opened, files)
    return warehouse


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "moment"), [*product(HANDS, MOMENTS)] if ALL else FEW)
def test_a_foreign_hand_is_exactly_honoured_or_refused(
    laid: Warehouse,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    moment: str,
) -> None:
    hand = HANDS[name]
    table = str(tmp_path / "streams" / "ORDERS" / "messages")

    def act() -> None:
        for statement in hand.statements:
            spark.sql(statement.format(t=f"delta.`{table}`", c=tmp_path / "clone"))

    after_hand = hand.leaves(set(range(1, 21)))
    if moment == "before":
        act()
        gone = set(sorted(after_hand)[:-13])
        error = _error(laid.apply(["ORDERS"])[0])
        refused = False
    else:
        gone = set(range(1, 8))
        plan = laid.plan(["ORDERS"])[0].value
        assert plan is not None
        error = _apply(laid, plan, act, moment, monkeypatch)
        refused = hand.touches_pinned
    assert (error is not None) == refused, error
    assert error is None or isinstance(error, RetentionError)
    expected = sorted(after_hand if refused else after_hand - gone)
    assert_seqs(_read(spark, table), expected)
    seen = pl.scan_delta(table).select("seq").collect()["seq"].to_list()
    assert sorted(seen) == expected
    assert held(laid)["seq"].to_pylist() == expected


def _apply(
    laid: Warehouse,
    plan: Plan,
    act: Callable[[], None],
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Exception | None:
    """Apply a saved plan; the change happens before it, or between its checks and its commit."""
    waiting = [act]

    def passed(step: Step) -> None:
        if step == Step.DELTA_COMMITTING and waiting:
            waiting.pop()()

    if moment == "between":
        waiting.pop()()
    monkeypatch.setattr(crash_points, "_watch", passed)
    error = _error(laid.apply_plans([plan])[0])
    assert not waiting, "the moment never came"
    return error


def test_the_documented_acts_are_the_tested_ones() -> None:
    text = Path("docs/semantics/storage.md").read_text(encoding="utf-8")
    for word, touches in (("Works", False), ("Refused (75), and nothing has changed", True)):
        [acts] = re.findall(
            rf"^- {re.escape(word)}: (`DELETE.*?)\n(?:-|\n)", text, re.MULTILINE | re.DOTALL
        )
        listed = {act.lower() for act in re.findall(r"`([A-Za-z ]+)`", acts)}
        assert listed == {name for name, hand in HANDS.items() if hand.touches_pinned is touches}


def _error(outcome: Any) -> Exception | None:
    error: Exception | None = outcome.error
    return error


def _read(spark: SparkSession, table: str) -> DataFrame:
    spark.catalog.clearCache()
    return spark.read.format("delta").load(table)


@pytest.mark.thorough
def test_a_shallow_clone_is_refused_by_name(
    place: Stage, spark: SparkSession, tmp_path: Path
) -> None:
    append(place.open(), range(1, 4))
    clone = Stage("delta", tmp_path / "streams" / "CLONE")
    spark.sql(f"CREATE TABLE delta.`{clone.table}` SHALLOW CLONE delta.`{place.table}`")
    with pytest.raises(RefusedError, match="shallow clone"):
        clone.open().snapshot()
    assert_seqs(_read(spark, clone.table), [1, 2, 3])
    assert sequences(place.open()) == [1, 2, 3]


ROW = {
    "partition": "int(0)",
    "segment": "bigint(11)",
    "seq": "id",
    "subject": "concat('orders.', id % 3)",
    "ts_ns": "id * 1000000000",
    "time": "timestamp_seconds(id)",
    "headers": "cast(null as binary)",
    "payload": "cast('payload' as binary)",
    "size": "bigint(50)",
    "deadline_ns": "cast(null as bigint)",
    "marker": "false",
    "msg_id": "cast(null as string)",
    "origin_ts_ns": "cast(null as bigint)",
}
WRONG = {
    "no seq": ({"seq": "cast(null as bigint)"}, "seq"),
    "no time": ({"ts_ns": "cast(null as bigint)"}, "ts_ns"),
    "no subject": ({"subject": "cast(null as string)"}, "subject"),
    "no segment": ({"segment": "cast(null as bigint)"}, "segment"),
    "below the base": ({"seq": "id - 11"}, "below the base|next base"),
    "in an older segment": ({"segment": "bigint(1)", "seq": "id + 20"}, "next base"),
    "twice in a file": ({"seq": "bigint(25)"}, "twice"),
    "twice in the table": ({"seq": "id - 1", "segment": "bigint(11)"}, "twice"),
}
SOME_WRONG = ("twice in the table",)
"""One kind of bad row; `test_foreign_rows.py` covers all kinds, appended by deltalake."""


UNDONE = [
    ("UPDATE {t} SET msg_id = 'x'", r"UPDATE by Apache-Spark\S* .* has rewritten 1 of 1 file"),
    ("OPTIMIZE {t} ZORDER BY (seq)", r"OPTIMIZE by Apache-Spark\S* .* has rewritten 1 of 1 file"),
    ("RESTORE TABLE {t} TO VERSION AS OF 1", r"nothing to undo: all 17 .*\(RESTORE by Apache-Sp"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("statement", "said"), UNDONE if ALL else UNDONE[:1])
def test_undo_says_what_spark_did_to_the_table(
    tmp_path: Path, spark: SparkSession, statement: str, said: str
) -> None:
    streams = warehouse_with(tmp_path, "delta", START + 100 * SECOND, max_msgs=23)
    lay(streams.stream("ORDERS").opened, even_segments(4, 10))
    [outcome] = streams.apply(as_of=START + 75 * SECOND)
    assert outcome.value is not None, outcome.sentence
    spark.sql(statement.format(t=f"delta.`{tmp_path}/streams/ORDERS/messages`"))
    after, run = held(streams), outcome.value.run
    ranges = tmp_path / f"streams/ORDERS/_retention/reports/{run}.ranges.arrow"
    record = ranges.read_bytes()
    # Like a run of a version that recorded only whole files only.
    ranges.unlink()
    with pytest.raises(RefusedError, match=said) as refused:
        streams.undo(run)
    assert "corrupt" not in str(refused.value)
    assert held(streams).equals(after)
    ranges.write_bytes(record)
    if "RESTORE" in statement:
        with pytest.raises(RefusedError, match=said):
            streams.undo(run)
        return
    streams.undo(run)
    table = spark.read.format("delta").load(f"{tmp_path}/streams/ORDERS/messages")
    assert_seqs(table, range(1, 41))
    assert held(streams).slice(17).equals(after)


@pytest.mark.parametrize("statistics", [True, False] if ALL else [False])
@pytest.mark.parametrize("name", WRONG if ALL else SOME_WRONG)
def test_wrong_rows_of_spark_are_refused_by_file(
    place: Stage, spark: SparkSession, name: str, statistics: bool
) -> None:
    columns, said = WRONG[name]
    store = place.open()
    append(store, range(1, 11))
    append(store, range(11, 21), segment=11)
    table = f"delta.`{place.table}`"
    for column in ("seq", "ts_ns", "subject", "segment"):
        if columns.get(column, "").startswith("cast(null"):
            spark.sql(f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL")
    spark.conf.set("spark.databricks.delta.stats.collect", str(statistics).lower())
    try:
        _append(spark, place.table, ROW | columns)
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")
    again = place.open()
    with pytest.raises(ForeignRowsError, match=said):
        again.inventory(again.snapshot())


@pytest.mark.thorough
def test_right_rows_without_statistics_are_taken_in(place: Stage, spark: SparkSession) -> None:
    store = place.open()
    append(store, range(1, 11))
    append(store, range(11, 21), segment=11)
    spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        _append(spark, place.table, ROW)
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")
    found = store.inventory(store.snapshot())
    assert found.counters.next_seq[0] == 26
    assert_seqs(_read(spark, place.table), range(1, 26))
    assert sequences(place.open()) == list(range(1, 26))


def _append(spark: SparkSession, table: str, columns: dict[str, str]) -> None:
    texts = [f"{value} as {name}" for name, value in columns.items()]
    frame = spark.range(21, 26).coalesce(1).selectExpr(*texts)
    frame.write.format("delta").mode("append").save(table)
