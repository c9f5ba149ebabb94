"""The view for analysts, made and queried by a real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sandboxes import Commands, commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = ("--json", "total:double", "--json", "customer.id:bigint", "--json", "paid:boolean")
PAYLOADS = ('{"total": 2.5, "customer": {"id": 7}, "paid": true}', '{"total": "many"}', "no JSON")


def published(warehouse: Commands, name: str, **fields: object) -> None:
    given = [
        json.dumps({"data": data, "ts_ns": 1_700_000_000_123_456_789, **fields})
        for data in PAYLOADS
    ]
    done = warehouse.run("publish", name, stdin="\n".join(given))
    assert done.exit_code == 0, done.stderr


@pytest.mark.spark
def test_a_view_has_the_live_messages_and_the_fields_of_their_json(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = commands(
        tmp_path / "a `odd` place", {"name": "ORDERS", "subjects": ["orders.>"]}, format="delta"
    )
    published(warehouse, "ORDERS", subject="orders.ada")
    made = warehouse.run("view", "ORDERS", "--name", "default.told", *FIELDS, "--create")
    try:
        assert (made.exit_code, "ends with the Spark application" in made.stderr) == (0, True), (
            made.stderr
        )
        rows = spark.sql("SELECT *, CAST(time AS STRING) AS at FROM told ORDER BY seq").collect()
        assert [(row["seq"], row["subject"], row["payload"]) for row in rows] == [
            (seq, "orders.ada", data) for seq, data in enumerate(PAYLOADS, 1)
        ]
        assert {row["time"].microsecond for row in rows} == {123_456}
        assert [(row["total"], row["customer.id"], row["paid"]) for row in rows] == [
            (2.5, 7, True),
            (None, None, None),
            (None, None, None),
        ]
        assert warehouse.run("delete", "ORDERS", "2", "--yes").exit_code == 0
        assert [row["seq"] for row in spark.table("told").orderBy("seq").collect()] == [1, 3]
    finally:
        spark.sql("DROP VIEW IF EXISTS told")
    spark.sql("CREATE TABLE told USING delta AS SELECT 1 AS one")
    try:
        refused = warehouse.run("view", "ORDERS", "--name", "told", "--create")
        assert (refused.exit_code, "Spark refuses the view" in refused.stderr) == (2, True)
    finally:
        spark.sql("DROP TABLE told")
