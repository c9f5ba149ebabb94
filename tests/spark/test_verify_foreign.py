"""Spark's OPTIMIZE of a stream is told apart from damage, until its files are damaged, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.retention.verify.test_foreign_rewrites import (
    assert_rewritten_and_not_damaged,
    stream_with_vectors,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("statement", ["OPTIMIZE {t}", "REORG TABLE {t} APPLY (PURGE)"])
def test_a_rewritten_stream_is_unverified_until_its_digests_are_recorded(
    spark: SparkSession, tmp_path: Path, statement: str
) -> None:
    planted = stream_with_vectors(tmp_path)
    spark.sql(statement.format(t=f"delta.`{planted.root / 'messages'}`"))
    assert_rewritten_and_not_damaged(planted, statement.split(maxsplit=1)[0])
