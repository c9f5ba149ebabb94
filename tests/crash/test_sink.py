"""A streaming query is killed: after a commit that its checkpoint lacks, and while it writes files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

from retention.apply.orphans import orphans
from retention.storage.crash_points import CRASH_AT, Step
from tests.support.crashes import TWICE
from tests.support.laying import START, held, warehouse_with
from tests.support.streaming_queries import WAYS, Way

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not TWICE, reason="starts Spark three times: `make long NAME=crash` runs it"
    ),
]
ROOT = Path(__file__).parents[2]
BATCHES, EACH = 3, 20
LEFT = {
    "data file that no commit names",
    "write that never ended",
    "work of a pass or an append that never ended",
}
"""The kinds of file that kills may leave."""
QUERY = """
import sys
from pathlib import Path
from retention.engines.spark.session import build_session
from retention.api.warehouse import open_warehouse
from tests.support.streaming_queries import append_stream

folder = Path(sys.argv[1])
spark = build_session("sink", java_options="-XX:TieredStopAtLevel=1")
log = open_warehouse(folder / "retention.yaml").new_stream("ORDERS")
source = spark.readStream.schema("subject string, payload binary, ts_ns long")
source = source.option("maxFilesPerTrigger", 1).json(str(folder / "arriving"))
append_stream(sys.argv[2], source, log, folder / "seen")
"""


def run_query(folder: Path, way: Way, crash_at: str = "") -> int:
    ended = subprocess.run(
        [sys.executable, "-c", QUERY, folder, way],
        cwd=ROOT,
        env=os.environ | {CRASH_AT: crash_at},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    print(ended.stderr)
    return ended.returncode


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_query_loses_and_doubles_nothing(warehouse: Path, way: Way) -> None:
    streams = warehouse_with(warehouse, "delta", START)
    arriving = warehouse / "arriving"
    arriving.mkdir()
    for batch in range(BATCHES):
        lines = [
            json.dumps({"subject": "s", "payload": f"{batch}{n:03}", "ts_ns": START + n})
            for n in range(EACH)
        ]
        (arriving / f"{batch}.json").write_text("\n".join(lines))
    assert run_query(warehouse, way, Step.DELTA_COMMITTED) == {"foreachBatch": -9, "format": 1}[way]
    assert held(streams).num_rows == EACH
    assert run_query(warehouse, way, Step.DATA_WRITTEN) == 1, "a killed worker fails the query"
    assert held(streams).num_rows == EACH
    assert run_query(warehouse, way) == 0
    found = held(streams)
    assert found["seq"].to_pylist() == list(range(1, BATCHES * EACH + 1))
    assert len(pc.unique(found["payload"])) == BATCHES * EACH
    left = {orphan.what for orphan in orphans(streams.stream("ORDERS").opened)}
    assert left <= LEFT
