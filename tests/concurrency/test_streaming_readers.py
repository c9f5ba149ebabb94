"""Removals in Spark's streaming reads of a table, by option, kind of removal, and `quiet`."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from retention.api.warehouse import Warehouse
from retention.errors import RefusedError
from tests.support.frames import assert_rows
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

ALL = "RETENTION_CONCURRENCY" in os.environ
"""Whether cases implied by others are also tested: `make long NAME=concurrency`."""
OPTIONS = ("none", "ignoreDeletes", "skipChangeCommits", "ignoreChanges", "readChangeFeed")
LAID = list(range(1, 31))
NEW = [31, 32]
KEPT = {"drop": 20, "rewrite": 15}
"""`max_msgs` on three segments of ten: the first is removed, or the first and half of the second."""
FAILS = "fails"
SEES = {
    ("drop", False): dict.fromkeys(OPTIONS[1:4], "new messages") | {"none": FAILS},
    ("rewrite", False): dict.fromkeys(OPTIONS[1:4], "new messages") | {"none": FAILS},
    ("drop", True): dict.fromkeys(OPTIONS[:4], "new messages"),
    ("rewrite", True): dict.fromkeys(OPTIONS[:4], "new messages"),
}
FED = {
    "drop": "removals, new messages",
    "rewrite": "removals, survivors again, new messages",
}
"""The content of a change feed."""
UNDONE = dict.fromkeys(OPTIONS[:4], "nothing") | {"readChangeFeed": "messages again"}
"""The rows of a running query from the undo of the pass."""
PAGE = Path(__file__).parents[2] / "docs/semantics/storage.md"


def started(spark: SparkSession, table: str, option: str) -> StreamingQuery:
    """A query that has read all existing rows."""
    source = spark.readStream.format("delta")
    if option != "none":
        source = source.option(option, "true")
    columns = ["seq", "_change_type" if option == "readChangeFeed" else "'insert' AS _change_type"]
    query = source.load(table).selectExpr(*columns).writeStream.format("memory").queryName(option)
    running = query.start()
    running.processAllAvailable()
    return running


def seen(spark: SparkSession, query: StreamingQuery, kind: str) -> tuple[str, str]:
    """A description of a query's rows from a pass and its undo, after the initial read."""
    from pyspark.errors import StreamingQueryException

    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        is_known = re.search("DELTA_SOURCE_(IGNORE_DELETE|TABLE_IGNORE_CHANGES)", str(error))
        return FAILS if is_known else str(error), ""
    finally:
        query.stop()
    rows = [tuple(row) for row in spark.table(query.name).collect()][len(LAID) :]
    gone = Counter(seq for seq, change in rows if change == "delete")
    come = Counter(seq for seq, change in rows if change == "insert")
    removed = set(LAID[: -KEPT[kind]])
    kinds = {
        "removals": gone.keys() >= removed,
        "survivors again": bool(come.keys() & (set(LAID) - removed)),
        "new messages": all(come[seq] == 1 for seq in NEW),
    }
    again = come.keys() & removed
    assert again in (set(), removed)
    if gone:
        left = Counter(LAID) + come - gone
        assert left == Counter([*LAID, *NEW]), "what a feed tells adds up to the table"
    of_pass = ", ".join(kind for kind, is_so in kinds.items() if is_so)
    return of_pass, "messages again" if again else "nothing"


@pytest.fixture(autouse=True)
def _nothing_goes_on(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def laid(folder: Path, **config: Any) -> tuple[Warehouse, str]:
    warehouse = warehouse_with(folder, "delta", START + 10**6 * SECOND, **config)
    lay(warehouse.new_stream("ORDERS").opened, even_segments(3, 10))
    return warehouse, str(folder / "streams" / "ORDERS" / "messages")


def with_change_feed(spark: SparkSession, table: str) -> None:
    properties = "delta.enableChangeDataFeed = true"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({properties})")


def undone(warehouse: Warehouse) -> None:
    """A pass, two more messages, and the undo of the pass."""
    (outcome,) = warehouse.apply(["ORDERS"])
    assert outcome.value is not None, outcome.sentence
    warehouse.stream("ORDERS").publish([f'{{"subject": "a", "data": "{seq}"}}' for seq in NEW])
    warehouse.undo(outcome.value.run)
    assert held(warehouse)["seq"].to_pylist() == [*LAID, *NEW]


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "quiet"), [one for one in SEES if ALL or not one[1]])
def test_what_a_streaming_reader_sees_of_a_removal_and_its_undoing(
    tmp_path: Path, spark: SparkSession, kind: str, quiet: bool
) -> None:
    warehouse, table = laid(tmp_path, max_msgs=KEPT[kind], quiet=quiet)
    queries = {option: started(spark, table, option) for option in SEES[kind, quiet]}
    undone(warehouse)
    expected = {
        option: (word, "" if word == FAILS else UNDONE[option])
        for option, word in SEES[kind, quiet].items()
    }
    found = {option: seen(spark, query, kind) for option, query in queries.items()}
    assert found == expected


@pytest.mark.thorough
@pytest.mark.parametrize("kind", FED if ALL else ["drop"])
def test_what_a_change_feed_tells_of_a_removal_and_its_undoing(
    tmp_path: Path, spark: SparkSession, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    warehouse, table = laid(tmp_path, max_msgs=KEPT[kind])
    with_change_feed(spark, table)
    options = ("readChangeFeed", "skipChangeCommits")
    feed, other = (started(spark, table, option) for option in options)
    with caplog.at_level(logging.WARNING):
        undone(warehouse)
    assert seen(spark, feed, kind) == (FED[kind], UNDONE["readChangeFeed"])
    # This commit only adds whole restored files, so the option has nothing to skip.
    doubles = kind == "drop"
    assert seen(spark, other, kind) == ("new messages", "messages again" if doubles else "nothing")
    assert ("readers of the table with skipChangeCommits" in caplog.text) == doubles
    quiet = warehouse_with(
        tmp_path, "delta", START + 10**6 * SECOND, max_msgs=KEPT[kind], quiet=True
    )
    (refused,) = quiet.apply(["ORDERS"])
    assert isinstance(refused.error, RefusedError)
    assert "quiet: true would hide removals from the change data feed" in refused.sentence
    assert held(quiet)["seq"].to_pylist() == [*LAID, *NEW]


@pytest.mark.thorough
def test_no_streaming_reader_sees_a_compaction(tmp_path: Path, spark: SparkSession) -> None:
    warehouse, table = laid(tmp_path, compact={"min_files": 2})
    with_change_feed(spark, table)
    lines = [f'{{"subject": "a", "data": "{seq}"}}' for seq in range(31, 35)]
    for line in lines:
        warehouse.stream("ORDERS").publish([line])
    tried = OPTIONS if ALL else ("none", "readChangeFeed")
    queries = [started(spark, table, option) for option in tried]
    (merged,) = warehouse.compact().apply()
    assert merged.value is not None, merged.sentence
    assert merged.value.files_before - merged.value.files_after > 1
    warehouse.stream("ORDERS").publish(['{"subject": "a", "data": "35"}'])
    for query in queries:
        query.processAllAvailable()
        seqs = pa.array(range(1, 36), pa.int64())
        rows = pa.table([seqs, pa.repeat("insert", len(seqs))], names=["seq", "_change_type"])
        assert_rows(spark.table(query.name), rows)


def test_the_documented_table_is_the_tested_one() -> None:
    rows = re.findall(r"^\| (?:`(\w+)`|(none)) \|(.+)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    documented = {
        code or word: tuple(cell.strip() for cell in cells.split("|"))
        for code, word, cells in rows
        if (code or word) in OPTIONS
    }
    tested = {
        option: (*(told[option] for told in SEES.values()), UNDONE[option])
        for option in OPTIONS[:4]
    }
    feed = (*FED.values(), "refused", "refused", UNDONE["readChangeFeed"])
    assert documented == tested | {"readChangeFeed": feed}
