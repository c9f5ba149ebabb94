"""`python -m benchmarks.metadata`: what a pass costs that metadata alone decides, by the number of segments."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from retention import open_warehouse
from retention.delta import entries
from retention.schemas.files import FILE_STATS
from retention.stores.delta import internals
from retention.stores.delta.actions import add_action
from retention.stores.layout import Layout
from retention.stores.sidecar.stats_cache import StatisticsCache

EACH = 1_000
EACH_STREAM = 24
END = 1_700_000_000 * 10**9
SPAN = 60 * 86_400 * 10**9
_BEFORE = """
import sys, time
from pathlib import Path
from retention.startup import spare_pandas
spare_pandas()
import retention.api.warehouse, retention.planners.shown, retention.stores.delta.format, retention.engines.local
import retention.stores.delta.store, retention.stores.delta.incremental, retention.planners.afresh
import numpy.ma, pyarrow.parquet
place, instant = Path(sys.argv[1]), int(sys.argv[2])
before, processor = time.perf_counter(), time.process_time()
"""
_AFTER = """
seconds, processor = time.perf_counter() - before, time.process_time() - processor
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(seconds, processor, peak, dropped)
"""
PLAN = """
outcomes = retention.api.warehouse.open_warehouse(place).plan(None, instant)
for outcome in outcomes:
    assert outcome.error is None, outcome.error
dropped = sum(outcome.value.header.segments.dropped for outcome in outcomes)
"""
APPLY = """
import retention.apply.run, retention.apply.execute, retention.apply.stage, retention.stores.delta.commit
before, processor = time.perf_counter(), time.process_time()
[outcome] = retention.api.warehouse.open_warehouse(place).apply(None, as_of=instant)
assert outcome.error is None, outcome.error
dropped = outcome.value.segments["dropped"]
"""
DELETE = f"""
import deltalake
before, processor = time.perf_counter(), time.process_time()
table = deltalake.DeltaTable(place / "streams/BIG/messages")
dropped = table.delete("segment < {10 * EACH}")["num_removed_files"]
"""
OPEN = """
import deltalake
before, processor = time.perf_counter(), time.process_time()
deltalake.DeltaTable(place / "streams/BIG/messages")
dropped = 0
"""
"""The lower bound of a first pass: a program that only reads the same log."""


def make_stream(folder: Path, segments: int) -> None:
    """Make a Delta stream with a log of `segments` files of a thousand messages over 60 days, without the files."""
    stream = {"name": "BIG", "subjects": ["big.>"], "max_age": "30d"}
    folder.mkdir(parents=True)
    (folder / "retention.yaml").write_text(json.dumps({"warehouse": ".", "streams": [stream]}))
    opened = open_warehouse(folder).stream("BIG").opened
    opened.store.create()
    files = _files(segments)
    counters = {"next_seq/0": segments * EACH + 1, "open_base/0": (segments - 1) * EACH + 1}
    layout = Layout(opened.root, "BIG")
    write_first_files(layout, files, counters)
    StatisticsCache(layout, time.time_ns).add(files)
    DeltaTable(f"{opened.root}/messages").create_checkpoint()


def write_first_files(layout: Layout, files: pa.Table, counters: Mapping[str, int]) -> None:
    """Write version 1 of a Delta stream's log: an entry that adds files and sets counters."""
    txns = [{"appId": name, "version": at, "lastUpdated": 0} for name, at in counters.items()]
    adds = [add_action(row, None, data_change=True) for row in files.to_pylist()]
    content = entries.encode([*({"txn": txn} for txn in txns), *adds])
    Path(internals.entry_place(layout.messages, 1)).write_bytes(content)


def make_streams(folder: Path, streams: int, segments: int) -> None:
    """Make a warehouse of equal streams, each as by `make_stream`."""
    make_stream(folder / "one", segments)
    names = [f"S{number:05d}" for number in range(streams)]
    listed = [{"name": name, "subjects": [f"{name}.>"], "max_age": "30d"} for name in names]
    (folder / "retention.yaml").write_text(json.dumps({"warehouse": ".", "streams": listed}))
    for name in names:
        copy = shutil.copytree(folder / "one" / "streams" / "BIG", folder / "streams" / name)
        marker = copy / "_retention" / "format.json"
        marker.write_text(marker.read_text().replace('"BIG"', f'"{name}"'))


def forget(folder: Path) -> None:
    """Delete the caches of earlier passes, as before the first one."""
    for own in folder.glob("streams/*/_retention"):
        shutil.rmtree(own / "ledger", ignore_errors=True)
        (own / "due.json").unlink(missing_ok=True)


def _files(segments: int) -> pa.Table:
    base = np.arange(segments) * EACH + 1
    first = END - SPAN + np.arange(segments) * (SPAN // segments)
    last = first + SPAN // segments - 1
    none = np.zeros(segments, dtype=np.int64)
    columns: dict[str, Any] = dict.fromkeys(("never", "deadlines", "markers", "partition"), none)
    columns |= {
        "path": [f"partition=0/segment={one}/{one:032x}.parquet" for one in base.tolist()],
        "segment": base,
        "file_bytes": none + 100_000,
        "modified_ms": none + END // 10**6,
        "messages": none + EACH,
        "bytes": none + 140 * EACH,
        "min_seq": base,
        "max_seq": base + EACH - 1,
        "min_deadline_ns": pa.nulls(segments, pa.int64()),
        "max_deadline_ns": pa.nulls(segments, pa.int64()),
        "in_time_order": np.ones(segments, dtype=bool),
    }
    columns |= dict.fromkeys(("min_ts_ns", "first_ts_ns"), first)
    columns |= dict.fromkeys(("max_ts_ns", "last_ts_ns"), last)
    return pa.table({name: columns[name] for name in FILE_STATS.names}).cast(FILE_STATS)


def measure(folder: Path, instant: int, runs: int, what: str = PLAN) -> dict[str, float]:
    """Plan in new processes; returns medians of seconds, processor seconds (without imports) and peak MiB."""
    told = [
        subprocess.run(
            [sys.executable, "-c", _BEFORE + what + _AFTER, str(folder), str(instant)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.split()
        for _ in range(runs)
    ]
    columns = zip(*([float(value) for value in one] for one in told), strict=True)
    names = ("seconds", "processor", "peak", "dropped")
    return dict(zip(names, map(statistics.median, columns), strict=True))


def instants(segments: int) -> dict[str, int]:
    """The instants of passes, by the amount due then."""
    oldest = END - SPAN + SPAN // 2
    step = SPAN // segments
    due = {"half of the segments": END - 1, "ten segments": oldest + 10 * step - 1}
    return due | {"nothing, as an earlier pass found": oldest - 1}


def _told(what: str, due: str, done: dict[str, float]) -> None:
    print(
        f"| {what} | {due} | {done['seconds']:.3f} | {done['processor']:.3f} "
        f"| {done['peak']:.0f} | {done['dropped']:.0f} |",
        flush=True,
    )


def _first(folder: Path, instant: int, runs: int) -> dict[str, float]:
    """As `measure`, each time as before the first pass."""
    told = []
    for _ in range(runs):
        forget(folder)
        told.append(measure(folder, instant, 1))
    return _medians(told)


def _by_segments(folder: Path, segments: int, runs: int) -> None:
    make_stream(folder, segments)
    due = instants(segments)
    opened = measure(folder, 0, runs, OPEN)
    _told(f"{segments:,}", "(the table opened by deltalake, no more)", opened)
    _told(f"{segments:,}", "ten segments, first pass", _first(folder, due["ten segments"], runs))
    measure(folder, due["nothing, as an earlier pass found"], 1)
    for what, instant in due.items():
        _told(f"{segments:,}", what, measure(folder, instant, runs))
    for what, work in (("removed", APPLY), ("deleted by deltalake, table opened", DELETE)):
        removed = _on_copies(folder, due["ten segments"], runs, work)
        _told(f"{segments:,}", f"ten segments, {what}", removed)


def _on_copies(folder: Path, instant: int, runs: int, work: str) -> dict[str, float]:
    """As `measure`, each time on a new copy."""
    told = []
    for number in range(runs):
        copy = folder.with_name(f"{folder.name}-{number}")
        shutil.copytree(folder, copy)
        told.append(measure(copy, instant, 1, work))
        shutil.rmtree(copy)
    return _medians(told)


def _medians(told: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in told) for name in told[0]}


def _by_streams(folder: Path, streams: int, runs: int) -> None:
    make_streams(folder, streams, EACH_STREAM)
    due, what = instants(EACH_STREAM), f"{streams:,} streams of {EACH_STREAM}"
    nothing = due["nothing, as an earlier pass found"]
    _told(what, "ten segments each, first pass", _first(folder, due["ten segments"], runs))
    _told(what, "ten segments each", measure(folder, due["ten segments"], runs))
    forget(folder)
    measure(folder, nothing, 1)
    _told(what, "nothing, as an earlier pass found", measure(folder, nothing, runs))


def main() -> None:
    """Make streams, measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metadata", description=__doc__)
    parser.add_argument("--segments", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--streams", type=int, nargs="*", default=[1_000])
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    print("| segments | what is due | seconds | processor seconds | peak MiB | segments that go |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        for segments in asked.segments:
            _by_segments(Path(directory, str(segments)), segments, asked.runs)
        for streams in asked.streams:
            _by_streams(Path(directory, f"{streams}-streams"), streams, asked.runs)


if __name__ == "__main__":
    main()
