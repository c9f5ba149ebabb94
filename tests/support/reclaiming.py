"""Streams from which a pass has removed files whose grace is over, by the real clock: reclaim goes by the storage's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from retention.api.warehouse import Warehouse, open_warehouse
from retention.context.context import OpenedStream
from tests.support.laying import START, even_segments, lay, warehouse_with

TICK_S = 0.02
"""Longer than the storage's clock stands still."""


def real_warehouse(folder: Path, format_: str, **limits: Any) -> Warehouse:
    """A warehouse with one stream, ORDERS, no grace, and the machine's clock."""
    warehouse_with(folder, format_, START, **({"grace": "0s"} | limits))
    return open_warehouse(folder / "retention.yaml", engine="local")


def emptied(folder: Path, format_: str, segments: int = 4, **limits: Any) -> OpenedStream:
    """A stream of which a pass has dropped the old segments, and rewritten one, a moment ago."""
    keeps = {"max_msgs": 15} | limits
    opened = real_warehouse(folder, format_, **keeps).stream("ORDERS").opened
    lay(opened, even_segments(segments, 10))
    run_pass(folder)
    return opened


def run_pass(folder: Path) -> str:
    """Run one pass; the name of the run."""
    warehouse = open_warehouse(folder / "retention.yaml", engine="local")
    [outcome] = warehouse.apply()
    if outcome.error is not None:
        raise outcome.error
    assert outcome.value is not None
    time.sleep(TICK_S)
    return outcome.value.run


def data_files(folder: Path) -> list[str]:
    """The data files of ORDERS that are on the disk, live or not, without what lies beside them."""
    root = folder / "streams" / "ORDERS"
    places = [root / "messages", *(root / "_retention" / kind for kind in ("trash", "staging"))]
    return sorted(
        str(path.relative_to(root))
        for place in places
        for path in place.rglob("*.parquet")
        if "_delta_log" not in path.parts
    )
