"""Ranges in local files of one process are copied to a location that tasks on other machines can read."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.context.context import OpenedStream
from retention.core.seq_ranges import ranges_in
from retention.plan import loaded_ranges
from retention.plan.removed_ranges import RemovedRanges
from retention.planners.scratch import within_reach
from retention.schemas.plan import REMOVED_RANGES
from tests.support.laying import SECOND, START, laid_stream


@dataclass
class Named:
    """A stub engine with a name only."""

    name: str


@pytest.fixture
def opened(tmp_path: Path) -> OpenedStream:
    return laid_stream(tmp_path, "parquet", START + 100 * SECOND, 1)


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> RemovedRanges:
    """Two ranges in each of three files, each file in its own part."""
    monkeypatch.setattr(loaded_ranges, "MOST_IN_MEMORY", 0)
    monkeypatch.setattr(loaded_ranges, "_OF_PART", 1)
    rows = [(file, 0, seq, seq, 1, 10) for file in range(3) for seq in (10 * file, 10 * file + 5)]
    columns = dict(zip(REMOVED_RANGES.names, zip(*rows, strict=True), strict=True))
    table = pa.table({name: list(values) for name, values in columns.items()}).cast(REMOVED_RANGES)
    loaded = loaded_ranges.loaded_ranges(table.slice(at, 2) for at in (0, 2, 4))
    assert len(loaded.parts) == 3
    # Other numbers than those in the files.
    return loaded.renumbered(np.array([7, 8, 9]))


def places(ranges: RemovedRanges) -> list[str]:
    return [part.stored.place for part in ranges.parts]


def reached(opened: OpenedStream, name: str, ranges: RemovedRanges, *numbers: int) -> RemovedRanges:
    engine: Any = Named(name)
    return within_reach(opened, engine, ranges, np.array(numbers))


def test_this_process_reads_its_own_files(opened: OpenedStream, ranges: RemovedRanges) -> None:
    assert places(reached(opened, "local", ranges, 7, 8, 9)) == places(ranges)


def test_ranges_in_memory_are_put_in_order_once(opened: OpenedStream) -> None:
    ranges = RemovedRanges()
    assert reached(opened, "spark", ranges, 7) is ranges


def test_tasks_elsewhere_get_what_they_need_and_no_more(
    opened: OpenedStream, ranges: RemovedRanges
) -> None:
    here = reached(opened, "spark", ranges, 7, 9)
    exchange = f"{opened.root}/_retention/exchange/"
    assert len(here.parts) == 2
    assert all(place.startswith(exchange) for place in places(here))
    wanted = np.array([7, 9])
    read = [ranges_in(some).tolist() for some in here.of_files(wanted)]
    assert read == [[[0, 0], [5, 5]], [[20, 20], [25, 25]]]
    again = reached(opened, "spark", here, 7, 9)
    assert places(again) == places(here)
    del again, here
    gc.collect()
    assert not list(Path(exchange).iterdir())
