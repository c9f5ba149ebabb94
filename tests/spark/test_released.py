"""Spark reads no table with row tombstones of an earlier build, which it would show again."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retention.api.warehouse import open_warehouse
from retention.engines.spark.read import read_frame
from retention.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FIXTURE = Path(__file__).parents[1] / "fixtures" / "released-2026-11.tar.gz"


def test_a_frame_is_refused_until_the_files_are_rewritten(
    spark: SparkSession, tmp_path: Path
) -> None:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    config = tmp_path / "retention.yaml"
    config.write_text(config.read_text().replace('"90%"', "0"))
    warehouse = open_warehouse(config)
    with pytest.raises(RefusedError, match="run `retention compact` of commit 64accb89"):
        read_frame(warehouse.stream("OPEN").opened, spark)
    rows = read_frame(warehouse.stream("DONE").opened, spark).select("seq").collect()
    assert sorted(row.seq for row in rows) == list(range(4, 11))
