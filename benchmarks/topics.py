"""`python -m benchmarks.topics`: what it costs to drop expired segments of a topic, beside deleting as many files."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from retention import open_warehouse
from retention.passes.guards import Guards
from retention.passes.outcomes import Outcome
from retention.ports import Swap
from retention.stores.layout import new_path
from retention.stores.offsets import Offsets, OffsetTable, StoredOffset, reader_of
from retention.topic import Topic
from schemas.files import FILE_STATS, LOGGED_FILES

NAME = "clicks"
PARTITIONS = 4
EACH = 1_000
"""Messages of a segment."""
STEP_NS = 60 * 10**9
"""Between segments of a partition."""
EXPIRY_S = 86_400
FIRST_NS = 1_700_000_000 * 10**9
_CONTENT = bytes(100)

Value = TypeVar("Value")


def make_topic(folder: Path, format_: str, segments: int) -> Topic:
    """A topic of that many sealed segments, all read to their end; its data files hold nothing that can be read."""
    folder.mkdir(parents=True)
    topic = {"name": NAME, "partitions": PARTITIONS, "message_expiry": f"{EXPIRY_S}s"}
    config = {"defaults": {"format": format_}, "topics": [topic]}
    (folder / "retention.yaml").write_text(json.dumps(config))
    made = open_warehouse(folder).topic(NAME)
    opened = made.opened
    opened.store.create()
    each = segments // PARTITIONS
    ends = dict.fromkeys(range(PARTITIONS), each * EACH)
    added = _files(made, each)
    swap = Swap(LOGGED_FILES.empty_table(), added, {"run": "made"}, ends, ends)
    opened.store.commit(swap, opened.store.snapshot())
    opened.store.finish()
    read = {reader_of(at, "consumer", 1): StoredOffset(end - 1, 0) for at, end in ends.items()}
    OffsetTable(opened.root).update(lambda _: Offsets(read))
    return made


def _files(topic: Topic, each: int) -> pa.Table:
    base = np.tile(np.arange(each) * EACH, PARTITIONS)
    partition = np.repeat(np.arange(PARTITIONS), each)
    paths, modified = _written(topic, partition, base)
    none = np.zeros(len(base), dtype=np.int64)
    first = FIRST_NS + base // EACH * STEP_NS
    columns: dict[str, Any] = dict.fromkeys(("never", "deadlines", "markers"), none)
    columns |= dict.fromkeys(("segment", "min_seq"), base)
    columns |= dict.fromkeys(("min_ts_ns", "first_ts_ns"), first)
    columns |= dict.fromkeys(("max_ts_ns", "last_ts_ns"), first + STEP_NS - 1_000)
    columns |= dict.fromkeys(
        ("min_deadline_ns", "max_deadline_ns"), pa.nulls(len(base), pa.int64())
    )
    columns |= {
        "path": paths,
        "partition": partition,
        "file_bytes": none + len(_CONTENT),
        "modified_ms": modified,
        "messages": none + EACH,
        "bytes": none + 140 * EACH,
        "max_seq": base + EACH - 1,
        "in_time_order": np.ones(len(base), dtype=bool),
    }
    return pa.table({name: columns[name] for name in FILE_STATS.names}).cast(FILE_STATS)


def _written(topic: Topic, partition: np.ndarray, base: np.ndarray) -> tuple[list[str], list[int]]:
    """Put a file where each segment's would be staged: paths, and times in milliseconds."""
    sample = topic.opened.store.stage(0, 0)
    staging = sample.location.removesuffix(sample.path)
    paths, modified = [], []
    for number, start in zip(partition.tolist(), base.tolist(), strict=True):
        path = new_path(number, start)
        place = Path(staging, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_CONTENT)
        paths.append(path)
        modified.append(place.stat().st_mtime_ns // 10**6)
    return paths, modified


def seconds(act: Callable[[], object]) -> float:
    """How long it takes."""
    before = time.perf_counter()
    act()
    return time.perf_counter() - before


def instant_of(dropped: int) -> int:
    """When so many segments of each partition are expired."""
    return FIRST_NS + dropped * STEP_NS + EXPIRY_S * 10**9


def ours(folder: Path, format_: str, segments: int, runs: int) -> Iterator[tuple[float, float]]:
    """Seconds of planning, and of planning and applying, each run dropping the next part."""
    make_topic(folder, format_, segments)
    part = segments // PARTITIONS // (2 * runs)
    for run in range(1, runs + 1):
        instant = instant_of(run * part)

        def planned(instant: int = instant) -> None:
            [outcome] = open_warehouse(folder, engine="local").plan([NAME], instant)
            _check(done(outcome).segments.dropped, part)

        def applied(instant: int = instant) -> None:
            warehouse = open_warehouse(folder, engine="local")
            [outcome] = warehouse.apply([NAME], instant, Guards(allow_future=True))
            _check(done(outcome).segments["dropped"], part)

        yield seconds(planned), seconds(applied)


def done(outcome: Outcome[Value]) -> Value:
    """What came of a stream that nothing went wrong with."""
    if outcome.value is None:
        raise outcome.error or ValueError(outcome.stream)
    return outcome.value


def _check(dropped: int, part: int) -> None:
    if dropped != part * PARTITIONS:
        raise ValueError(f"{dropped} segments went, not {part * PARTITIONS}")


def partition_deletes(folder: Path, segments: int, runs: int) -> Iterator[float]:
    """Seconds in which delta-rs deletes the same segments as partitions of the same table."""
    place = Path(make_topic(folder, "delta", segments).opened.root) / "messages"
    part = segments // PARTITIONS // (2 * runs)

    def deleted(bound: int) -> None:
        DeltaTable(place).delete(f"segment < {bound}")

    for run in range(1, runs + 1):
        yield seconds(partial(deleted, run * part * EACH))


def file_deletes(folder: Path, segments: int, runs: int) -> Iterator[float]:
    """Seconds in which as many files are unlinked: what a server does, but for its indexes."""
    folder.mkdir()
    places = [folder / f"{number:020}.log" for number in range(segments // 2)]
    for place in places:
        place.write_bytes(_CONTENT)
    part = segments // (2 * runs)
    for run in range(runs):
        mine = places[run * part : (run + 1) * part]
        yield seconds(partial(_unlink, mine))


def _unlink(places: Sequence[Path]) -> None:
    for place in places:
        place.unlink()


def told(what: str, segments: int, dropped: int, costs: list[float]) -> None:
    """Print one row: the median, and what it is for a thousand segments that go."""
    median = statistics.median(costs)
    per_thousand = median * 1e3 / dropped * 1e3
    print(
        f"| {segments:,} | {dropped:,} | {what} | {median:.3f} | {per_thousand:.1f} |", flush=True
    )


def main() -> int:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topics", description=__doc__)
    parser.add_argument("--segments", type=int, nargs="+", default=[2_400, 100_000])
    parser.add_argument("--runs", type=int, default=5, help="each drops the next part of one half")
    parser.add_argument("--directory", type=Path, help="where topics lie")
    options = parser.parse_args()
    print("| segments | go | what | seconds | ms per 1,000 |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="topics-", dir=options.directory) as directory:
        for segments in options.segments:
            place = Path(directory) / str(segments)
            part = segments // PARTITIONS // (2 * options.runs) * PARTITIONS
            for format_ in ("delta", "parquet"):
                costs = list(ours(place / format_, format_, segments, options.runs))
                plans, applies = (list(column) for column in zip(*costs, strict=True))
                told(f"plan, {format_}", segments, part, plans)
                told(f"apply, {format_}", segments, part, applies)
            deletes = list(partition_deletes(place / "delta-rs", segments, options.runs))
            told("delta-rs deletes partitions", segments, part, deletes)
            unlinks = list(file_deletes(place / "files", segments, options.runs))
            told("unlinking files", segments, segments // (2 * options.runs), unlinks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
