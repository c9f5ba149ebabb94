"""The ways of the benchmark of syncs: each reads the whole stream of a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

import retention
from benchmarks.sync import WAYS, Work, import_backup, make_rows, sync
from tests.support.nats_oracle import server

pytestmark = pytest.mark.live


def test_each_way_reads_all_and_copies_are_equal(tmp_path: Path) -> None:
    rows = make_rows("LIVE", 10_240, 2_000)
    with server() as nats:
        nats.restore("LIVE", {}, rows)
        nats.snapshot("LIVE", tmp_path / "LIVE.backup")
        for way in WAYS.values():
            way(Work(nats.url, "LIVE", 10_240, 2_000, tmp_path / way.__name__))
        with pytest.raises(AssertionError, match="2,000 of 2,001"):
            sync(Work(nats.url, "LIVE", 10_240, 2_001, tmp_path / "more"))
    for way in (import_backup, sync):
        stream = retention.open_warehouse(tmp_path / way.__name__).stream("LIVE")
        copied = [seq for table in stream.messages() for seq in table["seq"].to_pylist()]
        assert copied == rows["seq"].to_pylist()
