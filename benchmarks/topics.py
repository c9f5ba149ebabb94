"""`python -m benchmarks.topics`: what it costs to drop expired segments of a topic, and to import the logs of one."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from benchmarks import iggy_logs, metadata
from retention import open_warehouse
from retention.api.topic import Topic
from retention.apply.guards import Guards
from retention.core.outcomes import Outcome
from retention.schemas.files import FILE_STATS
from retention.stores.file_paths import new_path
from retention.stores.layout import Layout
from retention.stores.offset_table import Offsets, OffsetTable, StoredOffset, reader_of
from retention.stores.parquet.listing import COARSE_NS
from retention.stores.parquet.log import CommitEntry, ParquetLog
from retention.stores.sidecar.stats_cache import StatisticsCache

NAME = "clicks"
PARTITIONS = 4
EACH = 1_000
"""Messages per segment."""
STEP_NS = 60 * 10**9
"""The time between segments of a partition."""
EXPIRY_S = 86_400
FIRST_NS = 1_700_000_000 * 10**9
_CONTENT = bytes(100)

Value = TypeVar("Value")


def make_topic(folder: Path, format_: str, segments: int) -> Topic:
    """Make a topic of that many sealed segments, all read to their end.

    Its data files have no readable content; a Delta table has no data files.
    """
    folder.mkdir(parents=True)
    topic = {"name": NAME, "partitions": PARTITIONS, "message_expiry": f"{EXPIRY_S}s"}
    config = {"defaults": {"format": format_}, "topics": [topic]}
    (folder / "retention.yaml").write_text(json.dumps(config))
    made = open_warehouse(folder).topic(NAME)
    opened = made.opened
    opened.store.create()
    each = segments // PARTITIONS
    ends = dict.fromkeys(range(PARTITIONS), each * EACH)
    (_delta if format_ == "delta" else _parquet)(Layout(opened.root, NAME), _files(each), ends)
    read = {reader_of(at, "consumer", 1): StoredOffset(end - 1, 0) for at, end in ends.items()}
    OffsetTable(opened.root).update(lambda _: Offsets(read))
    return made


def _delta(layout: Layout, files: pa.Table, ends: Mapping[int, int]) -> None:
    names = (f"{kind}/{at}" for kind in ("next_seq", "open_base") for at in ends)
    metadata.write_first_files(layout, files, {name: ends[int(name[-1])] for name in names})
    StatisticsCache(layout, time.time_ns).add(files)
    DeltaTable(layout.messages).create_checkpoint()


def _parquet(layout: Layout, files: pa.Table, ends: Mapping[int, int]) -> None:
    modified = []
    for path in files["path"].to_pylist():
        place = Path(layout.live(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_CONTENT)
        modified.append(place.stat().st_mtime_ns // 10**6)
    at = FILE_STATS.get_field_index("modified_ms")
    files = files.set_column(at, FILE_STATS.field(at), pa.array(modified))
    log = ParquetLog(layout)
    log.append(CommitEntry(1, 0, add=files.to_pylist(), next_seq=ends, open_base=ends))
    state = log.read()
    log.write_list(state)
    (Path(layout.engine_path("log")) / "moved").write_text(f"1 {state.table_id}")


def _files(each: int) -> pa.Table:
    base = np.tile(np.arange(each) * EACH, PARTITIONS)
    partition = np.repeat(np.arange(PARTITIONS), each)
    places = zip(partition.tolist(), base.tolist(), strict=True)
    none = np.zeros(len(base), dtype=np.int64)
    first = FIRST_NS + base // EACH * STEP_NS
    columns: dict[str, Any] = dict.fromkeys(("never", "deadlines", "markers", "modified_ms"), none)
    columns |= dict.fromkeys(("segment", "min_seq"), base)
    columns |= dict.fromkeys(("min_ts_ns", "first_ts_ns"), first)
    columns |= dict.fromkeys(("max_ts_ns", "last_ts_ns"), first + STEP_NS - 1_000)
    columns |= dict.fromkeys(
        ("min_deadline_ns", "max_deadline_ns"), pa.nulls(len(base), pa.int64())
    )
    columns |= {
        "path": [new_path(*place) for place in places],
        "partition": partition,
        "file_bytes": none + len(_CONTENT),
        "messages": none + EACH,
        "bytes": none + 140 * EACH,
        "max_seq": base + EACH - 1,
        "in_time_order": np.ones(len(base), dtype=bool),
    }
    return pa.table({name: columns[name] for name in FILE_STATS.names}).cast(FILE_STATS)


def seconds(act: Callable[[], object]) -> float:
    """The seconds of an act."""
    before = time.perf_counter()
    act()
    return time.perf_counter() - before


def instant_of(dropped: int) -> int:
    """The instant at which this number of segments of each partition is expired."""
    return FIRST_NS + dropped * STEP_NS + EXPIRY_S * 10**9


def ours(folder: Path, format_: str, segments: int, runs: int) -> Iterator[tuple[float, float]]:
    """Seconds of planning, and of planning and applying; each run drops the next part of one half."""
    make_topic(folder, format_, segments)
    part = segments // PARTITIONS // (2 * runs)
    for run in range(1, runs + 1):
        instant = instant_of(run * part)
        yield (
            seconds(partial(_planned, folder, instant, part)),
            seconds(partial(_applied, folder, instant, part)),
        )


def quiet(folder: Path, instant: int, runs: int) -> list[float]:
    """Seconds of planning after everything due by then is removed."""
    # Directories changed a moment ago are not cached, and the next due instant needs their cache.
    time.sleep(COARSE_NS / 10**9)
    for _ in range(2):
        _planned(folder, instant, 0)
    return [seconds(partial(_planned, folder, instant, 0)) for _ in range(runs)]


def _planned(folder: Path, instant: int, part: int) -> None:
    [outcome] = open_warehouse(folder, engine="local").plan([NAME], instant)
    _check(done(outcome).header.segments.dropped, part)


def _applied(folder: Path, instant: int, part: int) -> None:
    warehouse = open_warehouse(folder, engine="local")
    [outcome] = warehouse.apply([NAME], instant, Guards(allow_future=True))
    _check(done(outcome).segments["dropped"], part)


def done(outcome: Outcome[Value]) -> Value:
    """The value of a successful outcome."""
    if outcome.value is None:
        raise outcome.error or ValueError(outcome.stream)
    return outcome.value


def _check(dropped: int, part: int) -> None:
    if dropped != part * PARTITIONS:
        raise ValueError(f"{dropped} segments went, not {part * PARTITIONS}")


def partition_deletes(folder: Path, segments: int, runs: int) -> Iterator[float]:
    """Seconds of delta-rs to delete the same segments as partitions of the same table."""
    place = Path(make_topic(folder, "delta", segments).opened.root) / "messages"
    part = segments // PARTITIONS // (2 * runs)

    def deleted(bound: int) -> None:
        DeltaTable(place).delete(f"segment < {bound}")

    for run in range(1, runs + 1):
        yield seconds(partial(deleted, run * part * EACH))


def file_deletes(folder: Path, segments: int, runs: int) -> Iterator[float]:
    """Seconds to unlink as many files, which is a server's work except for its indexes."""
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


def told(
    what: str, segments: int, costs: Sequence[float], dropped: int = 0, peak: float = 0
) -> None:
    """Print one row: the median, the median per thousand removed segments, and peak memory in MiB."""
    median = statistics.median(costs)
    per_thousand = f"{median * 1e6 / dropped:.0f}" if dropped else ""
    memory = f"{peak:.0f}" if peak else ""
    print(
        f"| {segments:,} | {dropped:,} | {what} | {median:.3f} | {per_thousand} | {memory} |",
        flush=True,
    )


def main() -> int:
    """Measure, and print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topics", description=__doc__)
    parser.add_argument("--segments", type=int, nargs="*", default=[2_400, 100_000])
    parser.add_argument("--runs", type=int, default=5, help="each drops the next part of one half")
    parser.add_argument("--mebibytes", type=int, default=64, help="of a log to be imported")
    parser.add_argument("--directory", type=Path, help="where topics lie")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topics-", dir=options.directory) as directory:
        place = Path(directory)
        print("| segments | go | what | seconds | ms per 1,000 that go | peak MiB |")
        print("|---|---|---|---|---|---|")
        for segments in options.segments:
            _segments(place / str(segments), segments, options.runs)
        print(
            "\n| era | what | seconds | MB/s | processor seconds | MB/s of a processor | peak MiB |"
        )
        print("|---|---|---|---|---|---|---|")
        for era in ("0.8", "0.9"):
            iggy_logs.measure(place / era, era, options.mebibytes, options.runs)
    return 0


def _segments(place: Path, segments: int, runs: int) -> None:
    each = segments // PARTITIONS // (2 * runs)
    part = each * PARTITIONS
    for format_ in ("delta", "parquet"):
        folder = place / format_
        plans, applies = zip(*ours(folder, format_, segments, runs), strict=True)
        unchanged = quiet(folder, instant_of(each * runs), runs)
        # The other half: planned in its own process, and dropped at once.
        end = instant_of(segments // PARTITIONS)
        peak = metadata.measure(folder, end, 1)["peak"]
        rest = segments // PARTITIONS - each * runs
        at_once = seconds(partial(_applied, folder, end, rest))
        told(f"plan, {format_}", segments, plans, part, peak)
        told(f"plan and apply, {format_}", segments, applies, part)
        told(f"plan and apply the rest at once, {format_}", segments, [at_once], rest * PARTITIONS)
        told(f"plan when nothing is due, {format_}", segments, unchanged)
    deletes = list(partition_deletes(place / "delta-rs", segments, runs))
    told("delta-rs deletes partitions", segments, deletes, part)
    unlinks = list(file_deletes(place / "files", segments, runs))
    told("unlinking files", segments, unlinks, segments // (2 * runs))


if __name__ == "__main__":
    sys.exit(main())
