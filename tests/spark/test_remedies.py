"""Spark executes the statements in refusals verbatim, and the stream continues."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.support.sandboxes import Commands, commands, lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MESSAGE = '{"subject": "orders.new"}'
ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 5, "quiet": True}


def goes_on(command: Commands, last_seq: int) -> None:
    for _ in range(2):
        passed = command.run("--engine", "local", "apply", "ORDERS", "--yes")
        assert passed.exit_code == 0, passed.output
        done = command.run("--format", "jsonl", "publish", "ORDERS", "-", stdin=MESSAGE)
        assert json.loads(done.stdout)["seq"] == last_seq + 1
        last_seq += 1


@pytest.mark.thorough
def test_spark_carries_out_the_statements_that_refusals_name(
    tmp_path: Path, spark: SparkSession
) -> None:
    command = commands(tmp_path / "a lake", ORDERS, format="delta", engine="local")
    for _ in range(2):
        command.json("publish", "ORDERS", "-", stdin="\n".join(lines(6)))
    place = tmp_path / "a lake/streams/ORDERS/messages"
    under_way = DeltaTable(place)
    command.json("apply", "ORDERS", "--yes")
    under_way.optimize.compact()
    DeltaTable(place).delete("seq = 10")
    refused = command.run("repair", "returned", "ORDERS", "--yes")
    assert refused.exit_code == 4, refused.output
    [restore] = re.findall(r"RESTORE TABLE .* VERSION AS OF \d+", refused.stderr)
    spark.sql(restore).collect()
    goes_on(command, 12)
    table = f"delta.`{place}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    spark.sql(f"DELETE FROM {table} WHERE seq = 11").collect()  # noqa: S608
    goes_on(command, 14)
