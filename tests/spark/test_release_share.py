from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.engines.select import Engines
from schemas.messages import MESSAGES
from tests.retention.planners.test_interest import AS_OF, NOW, progress, stand
from tests.support.frames import assert_seqs
from tests.support.laying import even_segments, lay, warehouse_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_a_frame_does_not_have_what_is_released(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    rules: dict[str, Any] = {"retention": "interest", "release_share": "90%"}
    stream = warehouse_with(tmp_path, format_, NOW, **rules).stream("ORDERS")
    lay(stream.opened, even_segments(4, 10))
    stand(stream.opened, "billing", progress(13, 40, *range(17, 31)))
    report = apply_now(stream.opened, AS_OF, Engines("local"), Guards())
    assert (report.bytes_written, report.removed_messages) == (0, 26)
    frame = stream.read(spark)
    assert frame.columns == MESSAGES.names
    assert_seqs(frame, range(17, 31))
