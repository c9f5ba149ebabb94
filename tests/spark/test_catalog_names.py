from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retention import open_warehouse
from retention.config import load_config
from retention.errors import UsageError
from tests.support.sandboxes import Commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "spark_catalog.default.named_events"


def configured(folder: Path, location: str) -> Path:
    table = {"name": "events", "location": location, "time": "at", "unit": "s", "max_age": "1d"}
    path = folder / "retention.yaml"
    path.write_text(json.dumps({"warehouse": ".", "tables": [table]}))
    return path


def test_a_name_in_a_catalog_is_the_directory_that_spark_knows(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "odd %41 name"
    spark.sql("SELECT explode(array(0L, 4000000000L)) AS at").write.format("delta").save(str(place))
    spark.sql(f"CREATE TABLE {NAME} USING delta LOCATION '{place}'")
    try:
        table = open_warehouse(configured(tmp_path, NAME), engine="auto").table("events")
        assert table.opened.location == str(place)
        assert table.plan().apply().plan.removed_rows == 1
        assert [row["at"] for row in spark.table(NAME).collect()] == [4 * 10**9]
    finally:
        spark.sql(f"DROP TABLE {NAME}")


def test_a_name_in_a_catalog_is_adopted_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("SELECT explode(array(1600000000L, 1700000000L)) AS at").write.format("delta").save(
        str(tmp_path / "lake")
    )
    spark.sql(f"CREATE TABLE {NAME} USING delta LOCATION '{tmp_path / 'lake'}'")
    try:
        done = Commands(tmp_path / "w").run("adopt", NAME, "--time", "at")
        assert done.exit_code == 0, done.stderr
        assert done.stdout.startswith(f"{tmp_path / 'lake'} (version 0): 2 rows in ")
        [table] = load_config(tmp_path / "w" / "retention.yaml").tables
        assert (table.name, table.location, table.columns.unit) == ("named_events", NAME, "s")
    finally:
        spark.sql(f"DROP TABLE {NAME}")
    unknown = Commands(tmp_path / "w").run("adopt", NAME)
    assert (unknown.exit_code, "Spark knows no such table" in unknown.stderr) == (2, True)


def test_a_name_that_nobody_knows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    config = configured(tmp_path, NAME)
    with pytest.raises(UsageError, match="Spark knows no such table"):
        open_warehouse(config, engine="auto").table("events")
    with pytest.raises(UsageError, match="is a name in a catalog, which only Spark knows"):
        open_warehouse(config, engine="local").table("events")
