"""The files of a statistics cache, changed as by another program that keeps their checksum right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from retention.storage.crash_points import Step
from retention.storage.sidecar import Sidecar
from retention.storage.table_codecs import ArrowCodec


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Replace the rows of one small file of a statistics cache."""
    codec: ArrowCodec[pa.Table] = ArrowCodec(lambda rows: rows, lambda _, rows: rows)
    place = Sidecar(str(file), codec, Step.STATS_CACHED)
    rows = place.load()
    assert rows is not None
    place.write(change(rows))
