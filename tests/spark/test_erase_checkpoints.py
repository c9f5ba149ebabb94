"""An erasure of rows of a table with v2 checkpoints: sidecars are listed until their owner has deleted them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from retention.api.warehouse import open_warehouse
from tests.erasure.test_erase_tables import BOB, EVE, TOKENS
from tests.support.strangers_search import hiding_places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
EVENTS = {"name": "events", "time": "at", "key": "user", "max_age": "100d"}


def test_sidecars_are_listed_until_the_owner_has_deleted_them(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = tmp_path / "lake"
    table = f"delta.`{lake}`"
    spark.sql(
        f"CREATE TABLE {table} (user STRING, id BIGINT, at TIMESTAMP) USING delta TBLPROPERTIES "
        "('delta.checkpointPolicy'='v2', 'delta.checkpointInterval'='2')"
    )
    for number in range(3):
        rows = (f"('{user}', {number}, current_timestamp())" for user in (EVE, BOB))
        spark.sql(f"INSERT INTO {table} VALUES {', '.join(rows)}")  # noqa: S608
    sidecars = {str(path) for path in lake.rglob("_sidecars/0*.parquet")}
    assert sidecars
    (tmp_path / "warehouse").mkdir()
    tables = [EVENTS | {"location": str(lake)}]
    config = {"warehouse": str(tmp_path / "warehouse"), "tables": tables}
    (tmp_path / "retention.yaml").write_text(json.dumps(config))
    events = open_warehouse(tmp_path / "retention.yaml", engine="local").table("events")
    report = events.erase({"user": EVE}, reason="request 7").apply()
    assert sidecars & {trace.location for trace in report.traces}
    assert "delete the files listed in _sidecars" in repr(report)
    do_as_told(str(lake))
    [report] = events.resume_erasures()
    for location in {trace.location for trace in report.traces}:
        assert "/_delta_log/" in location
        Path(location).unlink()
    if report.traces:
        [report] = events.resume_erasures()
    assert report.is_done, report
    assert hiding_places(str(tmp_path), TOKENS) == []
    left = spark.read.format("delta").load(str(lake)).collect()
    assert [row["user"] for row in left] == [BOB] * 3


def do_as_told(location: str) -> None:
    """The owner's commands in the report."""
    table = DeltaTable(location)
    table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    now = "interval 0 seconds"
    table.alter.set_table_properties(
        {"delta.logRetentionDuration": now, "delta.deletedFileRetentionDuration": now}
    )
    table.create_checkpoint()
    table.cleanup_metadata()
