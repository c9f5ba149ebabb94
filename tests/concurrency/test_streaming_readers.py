"""What Spark's streaming readers of a table see of removals, by option, kind of removal, and `quiet`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retention.errors import RefusedError
from retention.warehouse import Warehouse
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

ALL = "RETENTION_CONCURRENCY" in os.environ
"""Whether what follows from the other cases is shown by itself, too: `make concurrency`."""
OPTIONS = ("none", "ignoreDeletes", "skipChangeCommits", "ignoreChanges", "readChangeFeed")
LAID = list(range(1, 31))
NEW = [31, 32]
KEPT = {"drop": 20, "rewrite": 15}
"""`max_msgs` over three segments of ten: the first goes whole, or that and half of the second."""
SURVIVORS = list(range(16, 21))
FAILS = "fails"
SEES = {
    ("drop", False): {
        "none": FAILS,
        "ignoreDeletes": "new messages",
        "skipChangeCommits": "new messages",
        "ignoreChanges": "new messages",
        "readChangeFeed": "removals, new messages",
    },
    ("rewrite", False): {
        "none": FAILS,
        "ignoreDeletes": FAILS,
        "skipChangeCommits": "new messages",
        "ignoreChanges": "survivors again, new messages",
        "readChangeFeed": "removals, survivors again, new messages",
    },
    ("drop", True): dict.fromkeys(OPTIONS[:4], "new messages"),
    ("rewrite", True): dict.fromkeys(OPTIONS[:4], "new messages"),
}
PAGE = Path(__file__).parents[2] / "docs/semantics/storage.md"


def started(spark: SparkSession, table: str, option: str) -> StreamingQuery:
    """A query that has read everything that is there."""
    source = spark.readStream.format("delta")
    if option != "none":
        source = source.option(option, "true")
    columns = ["seq", "_change_type" if option == "readChangeFeed" else "'insert' AS _change_type"]
    query = source.load(table).selectExpr(*columns).writeStream.format("memory").queryName(option)
    running = query.start()
    running.processAllAvailable()
    return running


def seen(spark: SparkSession, query: StreamingQuery) -> str:
    """In words what a query got after what it had read at its start."""
    from pyspark.errors import StreamingQueryException

    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        is_known = re.search("DELTA_SOURCE_(IGNORE_DELETE|TABLE_IGNORE_CHANGES)", str(error))
        return FAILS if is_known else str(error)
    finally:
        query.stop()
    rows = [tuple(row) for row in spark.table(query.name).collect()][len(LAID) :]
    gone = sorted(seq for seq, change in rows if change == "delete")
    come = sorted(seq for seq, change in rows if change == "insert")
    kinds = {
        "removals": bool(gone),
        "survivors again": len(come) > len(NEW),
        "new messages": come[-len(NEW) :] == NEW,
    }
    assert not gone or set(come) - set(NEW) <= set(gone), "a feed tells of whole files"
    assert come in (NEW, [*LAID[15:20], *NEW]), come
    return ", ".join(kind for kind, is_so in kinds.items() if is_so)


@pytest.fixture(autouse=True)
def _nothing_goes_on(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def laid(folder: Path, **config: Any) -> tuple[Warehouse, str]:
    warehouse = warehouse_with(folder, "delta", START + 10**6 * SECOND, **config)
    lay(warehouse.new_stream("ORDERS").opened, even_segments(3, 10))
    return warehouse, str(folder / "streams" / "ORDERS" / "messages")


def with_change_feed(spark: SparkSession, table: str, *, on: bool) -> None:
    properties = f"delta.enableChangeDataFeed = {str(on).lower()}"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({properties})")


@pytest.mark.parametrize(("kind", "quiet"), [one for one in SEES if ALL or one != ("drop", True)])
def test_what_a_streaming_reader_sees_of_a_removal(
    tmp_path: Path, spark: SparkSession, kind: str, quiet: bool
) -> None:
    expected = SEES[kind, quiet]
    warehouse, table = laid(tmp_path, max_msgs=KEPT[kind], quiet=quiet)
    with_change_feed(spark, table, on=True)
    if quiet:
        (refused,) = warehouse.apply(["ORDERS"])
        assert isinstance(refused.error, RefusedError)
        assert "quiet: true would hide removals from the change data feed" in refused.sentence
        assert held(warehouse)["seq"].to_pylist() == LAID
        with_change_feed(spark, table, on=False)
    queries = {option: started(spark, table, option) for option in expected}
    (outcome,) = warehouse.apply(["ORDERS"])
    assert outcome.value is not None, outcome.sentence
    warehouse.stream("ORDERS").publish([f'{{"subject": "a", "data": "{seq}"}}' for seq in NEW])
    if quiet:
        warehouse.undo(outcome.value.run)
    assert {option: seen(spark, query) for option, query in queries.items()} == expected


def test_the_documented_table_is_the_tested_one() -> None:
    rows = re.findall(r"^\| (?:`(\w+)`|(none)) \|(.+)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    documented = {
        code or word: tuple(cell.strip() for cell in cells.split("|"))
        for code, word, cells in rows
        if (code or word) in OPTIONS
    }
    tested = {
        option: tuple(seen.get(option, "refused") for seen in SEES.values()) for option in OPTIONS
    }
    assert documented == tested
