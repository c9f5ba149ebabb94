from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retention.schemas.messages import MESSAGES
from tests.support.consuming import prepare
from tests.support.frames import assert_seqs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_a_batch_is_a_frame_and_is_settled_when_its_job_is_done(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    stream = prepare(tmp_path, 3, 4, format_)
    billing = stream.consumer("billing")
    billing.fetch(2)
    frame = billing.read(spark, 5)
    assert frame.columns == MESSAGES.names
    assert_seqs(frame, [3, 4, 5, 6, 7])
    assert billing.ack_all().taken == 7
    assert billing.state.ack_floor.stream_seq == 7
    stream.plan().apply()
    rest = billing.read(spark)
    assert rest.count() == 5
    assert billing.read(spark).count() == 0
