"""`python -m benchmarks.compaction`: many small files of a stream become one file a segment."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import retention
from benchmarks.comparing import choices, say
from benchmarks.data import copy_warehouse, fingerprint, messages_of, payloads, write_config
from benchmarks.meter import Cost, measure
from benchmarks.processes import ContenderError
from benchmarks.tasks import FIRST_TS_NS, STEP_NS, STREAM
from benchmarks.ttl import floor
from retention.core import message_rows
from retention.ingest.append import append_rows

SUBJECTS = 2_000
SHORTEST, LONGEST = 100, 1_000
"""Bytes of payloads, drawn evenly."""
_SEED = 20_260_101
_NAMES = ("ours", "deltalake")


def make_small_files(warehouse: Path, files: int, messages: int, segments: int) -> None:
    """Write a warehouse with one stream: so many appends of so many messages each, in so many segments."""
    warehouse.mkdir(parents=True)
    span_ms = files * messages * STEP_NS // segments // 1_000_000
    write_config(warehouse, f"segment_size: 1TiB, segment_span: {span_ms}ms, compact: true")
    stream = retention.open_warehouse(warehouse, engine="local").stream(STREAM)
    random = np.random.default_rng(_SEED)
    names = pa.array([f"orders.{number}" for number in range(SUBJECTS)])
    for start in range(0, files * messages, messages):
        raw = pa.table(
            {
                "subject": names.take(pa.array(random.integers(0, SUBJECTS, messages))),
                "headers": pa.nulls(messages, pa.binary()),
                "payload": payloads(random, random.integers(SHORTEST, LONGEST, messages)),
                "ts_ns": FIRST_TS_NS + np.arange(start, start + messages) * STEP_NS,
            }
        )
        append_rows(stream.opened, iter([message_rows.complete_rows(raw, "file")]))


def compact_ours(warehouse: Path) -> None:
    """Merge with this engine, in this process."""
    [outcome] = retention.open_warehouse(warehouse, engine="local").compact()
    if outcome.error is not None:
        raise outcome.error


def compact_deltalake(warehouse: Path) -> None:
    """Merge with deltalake, a file for each partition."""
    DeltaTable(str(messages_of(warehouse))).optimize.compact(target_size=1 << 40)


CONTENDERS: dict[str, Callable[[Path], None]] = dict(
    zip(_NAMES, (compact_ours, compact_deltalake), strict=True)
)


def compare(source: Path, place: Path, runs: int, names: Sequence[str]) -> dict[str, list[Cost]]:
    """The costs of contenders that take turns, each on a fresh copy; the first turn does not count.

    Raises:
        ContenderError: one has lost or doubled a message.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    rows = table_of(source)["messages"]
    for turn in range(runs + 1):
        for name in names:
            copy = place / f"{name}-{turn}"
            copy_warehouse(source, copy)
            cost = measure(lambda name=name, copy=copy: CONTENDERS[name](copy))  # type: ignore[misc]
            left = table_of(copy)
            if left["messages"] != rows:
                raise ContenderError(f"{name} left {left['messages']} of {rows} messages")
            say(f"{name}: {cost.seconds:.2f} s, {left['files']} files, {left['groups']} row groups")
            if turn:
                costs[name].append(cost)
    return costs


def table_of(warehouse: Path) -> dict[str, Any]:
    """What a table holds: files, row groups, bytes, messages."""
    table = DeltaTable(str(messages_of(warehouse)))
    footers = [pq.read_metadata(f"{messages_of(warehouse)}/{path}") for path in _paths(table)]
    return {
        "files": len(footers),
        "groups": sum(footer.num_row_groups for footer in footers),
        "messages": sum(footer.num_rows for footer in footers),
    }


def _paths(table: DeltaTable) -> list[str]:
    return list(map(str, table.get_add_actions(flatten=True)["path"].to_pylist()))


def _row(name: str, costs: Sequence[Cost], ours: float) -> str:
    seconds = sorted(cost.seconds for cost in costs)
    middle = statistics.median(seconds)
    used = statistics.median(cost.cpu_seconds for cost in costs)
    moved = [statistics.median(getattr(cost, name) or 0 for cost in costs) / 1e6 for name in _MOVED]
    return (
        f"| {name} | {middle:.2f} ({seconds[0]:.2f} to {seconds[-1]:.2f}) | {middle / ours:.2f} | {used:.2f} | "
        f"{moved[0]:.0f} | {moved[1]:.0f} |"
    )


_MOVED = ("bytes_read", "bytes_written")


def main() -> int:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--messages", type=int, default=400, help="in each file")
    parser.add_argument("--segments", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each contender")
    parser.add_argument("--contenders", type=choices(_NAMES), default=_NAMES)
    parser.add_argument("--directory", type=Path, help="where tables and copies lie")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compaction-", dir=options.directory) as directory:
        source = Path(directory) / "source"
        make_small_files(source, options.files, options.messages, options.segments)
        before = fingerprint(Path(directory))
        say(f"{options.files} files, {sum(length for _, length, _ in before) / 1e6:.0f} MB")
        costs = compare(source, Path(directory), options.runs, options.contenders)
        copied = floor(source, Path(directory) / "floor", options.runs)
    print(
        "| | seconds | times ours | processor seconds | MB read | MB written |\n|---|---|---|---|---|---|"
    )
    ours = statistics.median(cost.seconds for cost in next(iter(costs.values())))
    for name, spent in costs.items():
        print(_row(name, spent, ours))
    print(
        f"| (all files copied byte by byte) | {copied['seconds']:.2f} | {copied['seconds'] / ours:.2f} | | | |"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
