"""Every feature of a real delta-spark, used on our table: the result is exact, or a refusal by name."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable

from retention.api.warehouse import Warehouse
from retention.errors import RefusedError, RetentionError
from retention.stores.delta.compatibility import ALLOWED_FEATURES
from tests.support.frames import assert_seqs
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with
from tests.support.trees import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ALL = os.environ.get("RETENTION_FOREIGN") == "all"
SUPPORTED = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.%s' = 'supported')"
PROPERTY = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.%s' = '%s')"


@dataclass(frozen=True)
class Feature:
    """A feature's use by Spark, and the results of a pass and of an append."""

    statements: tuple[str, ...]
    passes: bool = True
    appends: bool = True
    anew: bool = False
    """Whether only a new table can use it; it gets the rows of our table (the view `laid`)."""


def _used(*statements: str) -> Feature:
    return Feature(statements)


WORKS = {
    "appendOnly": Feature((PROPERTY % ("appendOnly", "true"),), passes=False),
    "invariants": _used("ALTER TABLE {t} ALTER COLUMN ts_ns DROP NOT NULL"),
    "checkConstraints": Feature(
        ("ALTER TABLE {t} ADD CONSTRAINT sized CHECK (size >= 0)",), appends=False
    ),
    "generatedColumns": Feature(
        (
            "CREATE TABLE {t} (partition INT, segment BIGINT, seq BIGINT NOT NULL, subject STRING NOT NULL, "
            "ts_ns BIGINT NOT NULL, time TIMESTAMP, headers BINARY, payload BINARY, size BIGINT NOT NULL, "
            "deadline_ns BIGINT, marker BOOLEAN GENERATED ALWAYS AS (seq < 0), msg_id STRING, origin_ts_ns BIGINT) "
            "USING delta PARTITIONED BY (partition, segment)",
            "INSERT INTO {t} SELECT * FROM laid",
        ),
        appends=False,
        anew=True,
    ),
    "changeDataFeed": _used(PROPERTY % ("enableChangeDataFeed", "true")),
    "v2Checkpoint": _used(
        PROPERTY % ("checkpointPolicy", "v2"),
        PROPERTY % ("checkpointInterval", "1"),
        "COMMENT ON TABLE {t} IS 'one more version'",
    ),
    "timestampNtz": _used(SUPPORTED % "timestampNtz"),
    "deletionVectors": _used(PROPERTY % ("enableDeletionVectors", "true")),
}
REFUSED = {
    "columnMapping": _used(PROPERTY % ("columnMapping.mode", "name")),
    "rowTracking": _used(PROPERTY % ("enableRowTracking", "true")),
    "inCommitTimestamp": _used(PROPERTY % ("enableInCommitTimestamps", "true")),
    "identityColumns": _used(SUPPORTED % "identityColumns"),
    "typeWidening": _used(PROPERTY % ("enableTypeWidening", "true")),
    "icebergCompatV1": _used(SUPPORTED % "icebergCompatV1"),
    "icebergCompatV2": _used(SUPPORTED % "icebergCompatV2"),
    "vacuumProtocolCheck": _used(SUPPORTED % "vacuumProtocolCheck"),
    "checkpointProtection": _used(SUPPORTED % "checkpointProtection"),
    "domainMetadata": _used(SUPPORTED % "domainMetadata"),
    "clustering": _used(
        "CREATE OR REPLACE TABLE {t} USING delta CLUSTER BY (seq) AS SELECT * FROM {t} VERSION AS OF 1"
    ),
    "allowColumnDefaults": _used(
        SUPPORTED % "allowColumnDefaults", "ALTER TABLE {t} ALTER COLUMN msg_id SET DEFAULT 'none'"
    ),
    "variantType": _used("ALTER TABLE {t} ADD COLUMN said VARIANT"),
}
OFTEN = ("columnMapping", "rowTracking", "inCommitTimestamp", "changeDataFeed", "v2Checkpoint")


def _asked(features: dict[str, Feature]) -> list[str]:
    return [name for name in features if ALL or name in OFTEN]


@pytest.fixture
def laid(tmp_path: Path) -> Warehouse:
    """Messages 1 to 20 in segments of five; the limit is 13."""
    warehouse = warehouse_with(tmp_path, "delta", START + 10**6 * SECOND, max_msgs=13)
    lay(warehouse.new_stream("ORDERS").opened, even_segments(4, 5))
    return warehouse


def _table(warehouse: Warehouse) -> str:
    return f"{warehouse.location}/streams/ORDERS/messages"


def _use(spark: SparkSession, warehouse: Warehouse, feature: Feature) -> None:
    if feature.anew:
        rows = spark.read.format("delta").load(_table(warehouse)).toArrow()
        spark.createDataFrame(rows).createOrReplaceTempView("laid")
        shutil.rmtree(_table(warehouse))
    for statement in feature.statements:
        spark.sql(statement.format(t=f"delta.`{_table(warehouse)}`"))


def _seen(spark: SparkSession, warehouse: Warehouse) -> list[int]:
    """The common view of Spark, this engine and Polars; Polars refuses most reader features."""
    spark.catalog.clearCache()
    seqs: list[int] = held(warehouse)["seq"].to_pylist()
    assert_seqs(spark.read.format("delta").load(_table(warehouse)), seqs)
    if not DeltaTable(_table(warehouse)).protocol().reader_features:
        polars = pl.scan_delta(_table(warehouse)).select("seq").collect()["seq"].to_list()
        assert sorted(polars) == seqs
    return seqs


def _publish(warehouse: Warehouse) -> None:
    warehouse.stream("ORDERS").publish([b'{"subject": "a", "data": "x"}'], "app", 1)


@pytest.mark.thorough
@pytest.mark.parametrize("name", _asked(WORKS))
def test_a_feature_that_works_leaves_exactly_the_right_rows(
    laid: Warehouse, spark: SparkSession, name: str
) -> None:
    feature = WORKS[name]
    _use(spark, laid, feature)
    before = DeltaTable(_table(laid)).version()
    [outcome] = laid.apply()
    expected = list(range(8 if feature.passes else 1, 21))
    assert isinstance(outcome.error, RefusedError) != feature.passes, outcome.error
    assert _seen(spark, laid) == expected
    if feature.appends:
        _publish(laid)
        assert _seen(spark, laid) == [*expected, 21]
    else:
        with pytest.raises(RefusedError, match="constraints or computed columns"):
            _publish(laid)
        assert _seen(spark, laid) == expected
    if name == "changeDataFeed":
        net: Counter[int] = Counter()
        options = {"readChangeFeed": "true", "startingVersion": str(before + 1)}
        changes = spark.read.format("delta").options(**options).load(_table(laid))
        for row in changes.select("seq", "_change_type").collect():
            net[row.seq] += 1 if row._change_type == "insert" else -1
        assert {seq: n for seq, n in net.items() if n} == dict.fromkeys(range(1, 8), -1) | {21: 1}


@pytest.mark.thorough
@pytest.mark.parametrize("name", _asked(REFUSED))
def test_a_feature_that_is_not_known_to_be_safe_is_refused_by_name(
    laid: Warehouse, spark: SparkSession, name: str
) -> None:
    _use(spark, laid, REFUSED[name])
    _check_refused(laid, name)


@pytest.mark.skipif(not ALL, reason="make long NAME=foreign")
def test_every_other_feature_of_this_delta_spark_is_refused_by_name(
    tmp_path: Path, spark: SparkSession
) -> None:
    jvm = spark._jvm
    assert jvm is not None
    known = jvm.org.apache.spark.sql.delta.TableFeature.allSupportedFeaturesMap()
    names = [pair._2().name() for pair in _elements(known)]
    assert {*WORKS, *REFUSED} <= {*names, "identityColumns"}
    others = sorted({*names} - {*WORKS, *REFUSED})
    print(f"{len(names)} features, {len(others)} of them in no table: {', '.join(others)}")
    refused_by_spark = []
    for number, name in enumerate(others):
        folder = tmp_path / str(number)
        warehouse = warehouse_with(folder, "delta", START + 10**6 * SECOND, max_msgs=13)
        lay(warehouse.new_stream("ORDERS").opened, even_segments(4, 5))
        try:
            _use(spark, warehouse, _used(SUPPORTED % name))
        except Exception:
            refused_by_spark.append(name)
            continue
        _check_refused(warehouse, name)
    print(f"refused by Spark itself: {', '.join(refused_by_spark)}")
    assert len(refused_by_spark) < len(others)


def _elements(scala_map: Any) -> list[Any]:
    iterator = scala_map.iterator()
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


def _check_refused(warehouse: Warehouse, name: str) -> None:
    before = tree(Path(_table(warehouse)))
    for act in (warehouse.plan, warehouse.apply):
        error = act()[0].error
        assert isinstance(error, RefusedError), error
        assert name in str(error)
    with pytest.raises(RetentionError, match=name):
        _publish(warehouse)
    assert tree(Path(_table(warehouse))) == before


def test_the_documented_features_are_the_tested_ones() -> None:
    text = Path("docs/semantics/storage.md").read_text(encoding="utf-8")
    [works] = re.findall(r"^- Works: (`appendOnly`.*?)^- Refused: ", text, re.MULTILINE | re.DOTALL)
    [refused] = re.findall(r"^- Refused: (`columnMapping`.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert {*re.findall(r"`(\w+)`", works)} == {*WORKS}
    assert {*re.findall(r"`(\w+)`", refused)} == {*REFUSED}
    assert WORKS.keys() == ALLOWED_FEATURES
