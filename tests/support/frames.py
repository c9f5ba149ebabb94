"""Assertions on the rows of Spark frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from chispa import assert_df_equality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def assert_rows(frame: DataFrame, rows: pa.Table) -> None:
    """Assert that the frame has exactly these rows, sorted by column values."""
    wanted = frame.sparkSession.createDataFrame(rows)
    assert_df_equality(frame.sort(*frame.columns), wanted, ignore_nullable=True)


def assert_seqs(frame: DataFrame, seqs: Iterable[int]) -> None:
    """Assert that the messages in the frame have exactly these sequences, each once."""
    assert_rows(frame.select("seq"), pa.table({"seq": pa.array(sorted(seqs), pa.int64())}))
