"""`python -m benchmarks.growth`: what grows with a stream: time, processor time, memory and bytes of one pass."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import retention
from benchmarks.comparing import choices, say
from benchmarks.contenders import WHERE
from benchmarks.data import write_config
from benchmarks.processes import ContenderError, Process
from benchmarks.tasks import FIRST_TS_NS, STREAM, Task
from retention.core import message_rows
from retention.ingest.append import append_rows

MILLION = 1_000_000
FIRST = MILLION
"""Messages of the warm-up stream: sessions start, JVMs compile, workers load their modules."""
SEGMENT = 250_000
STEP_NS = 10**6
OFTEN = 5
"""Average messages per subject."""
TTL_MINUTES = (24 * 60, 21 * 24 * 60)
"""The range of uniformly drawn TTLs."""
DUE = 0.05
"""The share of expired TTLs, anywhere in the stream."""
CONTENDERS = (
    "ours",
    "ours-spark",
    "ours-spark-cluster",
    "delta-spark",
    "delta-spark-window",
    "duckdb",
)
NAMES = ("last-many", "ttl", "bytes")
_SEED = 20_250_103


def make_stream(warehouse: Path, messages: int) -> int:
    """Write a stream with scattered TTLs and uniform subjects; returns its bytes by the broker's accounting."""
    warehouse.mkdir(parents=True)
    span_ms = SEGMENT * STEP_NS // 10**6
    settings = f"allow_msg_ttl: true, segment_size: 1TiB, segment_span: {span_ms}ms"
    write_config(warehouse, settings)
    stream = retention.open_warehouse(warehouse, engine="local").stream(STREAM)
    return append_rows(stream.opened, _batches(messages)).bytes


def tasks_of(messages: int, total_bytes: int, names: tuple[str, ...]) -> Iterator[Task]:
    """The pieces of work on a stream of that size."""
    least, most = TTL_MINUTES
    # The instant at which the share `DUE` of the deadlines has passed.
    minutes = least + DUE * (most - least)
    limit = FIRST_TS_NS + messages * STEP_NS // 2 + int(minutes * 60) * 10**9
    every = {
        "last-many": (
            "last",
            1,
            f"keep the last message of each of {messages // OFTEN:,} subjects",
        ),
        "ttl": ("ttl", limit, f"about {DUE:.0%} of the TTLs are over, all over the stream"),
        "bytes": ("bytes", total_bytes // 4, "keep the newest 25 % of the bytes"),
    }
    for name in names:
        kind, bound, title = every[name]
        yield Task(name, kind, "stream", bound, title)  # type: ignore[arg-type]


def measured(
    directory: Path, tasks: tuple[Task, Task], names: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """One run of each contender, in its own process, after the same run on a small stream.

    Args:
        directory: the directory of the streams `small` and `stream`.
        tasks: the work on the two streams.
        names: the contenders.
    """
    first, task = tasks
    for name in names:
        say(f"{task.name}: {name}")
        process = Process([name], directory)
        try:
            if process.takes(name, task):
                process.run(name, directory / "small", first)
                yield {"contender": name} | process.run(name, directory / "stream", task)
        except ContenderError as error:
            yield {"contender": name, "failed": str(error)}
        finally:
            process.stop()


def table(rows: list[dict[str, Any]]) -> str:
    """Results as a Markdown table.

    Peaks are resident memory of the largest process of a kind; a local session's JVM is driver and executor.
    """
    lines = [
        "| | seconds | processor seconds | MB read | MB written | MB shuffled | peak MB: Python | JVM | a worker |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['contender']} | {row['failed']} |" + " |" * 7)
            continue
        moved = ((row[name] or 0) / 1e6 for name in ("bytes_read", "bytes_written", "shuffled"))
        peaks = (row["peaks"].get(kind, 0) for kind in ("driver", "java", "worker"))
        cells = (*moved, *peaks)
        lines.append(
            f"| {row['contender']} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} | "
            + " | ".join(f"{cell:,.0f}" for cell in cells)
            + " |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure every size, print Markdown tables; 1 if survivors differ or a contender failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--millions", default="5,50", help="messages of each stream")
    parser.add_argument("--only", type=choices(NAMES), default=NAMES, help=", ".join(NAMES))
    parser.add_argument("--contenders", type=choices(tuple(WHERE)), default=CONTENDERS)
    parser.add_argument("--directory", type=Path, help="where streams and copies lie")
    parser.add_argument("--output", type=Path, help="where the results go, as JSON")
    options = parser.parse_args()
    results = []
    for millions in map(int, options.millions.split(",")):
        with tempfile.TemporaryDirectory(prefix="growth-", dir=options.directory) as directory:
            messages = millions * MILLION
            say(f"making a stream of {messages:,} messages")
            first_bytes = make_stream(Path(directory, "small"), FIRST)
            total_bytes = make_stream(Path(directory, "stream"), messages)
            first = tasks_of(FIRST, first_bytes, options.only)
            for tasks in zip(first, tasks_of(messages, total_bytes, options.only), strict=True):
                task = tasks[1]
                rows = list(measured(Path(directory), tasks, options.contenders))
                left = {(row["messages"], row["seq_sum"]) for row in rows if "failed" not in row}
                results.append({"messages": messages, "task": task.name, "runs": rows})
                print(f"### {messages:,} messages: {task.title}\n\n{table(rows)}\n", flush=True)
                if len(left) != 1 or any("failed" in row for row in rows):
                    say(f"{task.name}: survivors differ, or a contender failed: {sorted(left)}")
                    return 1
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _batches(messages: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(_SEED)
    for start in range(0, messages, SEGMENT):
        count = min(SEGMENT, messages - start)
        numbers = pa.array(random.integers(0, messages // OFTEN, count)).cast(pa.string())
        ttl = pa.array(random.integers(*TTL_MINUTES, count)).cast(pa.string())
        blocks = pc.binary_join_element_wise("NATS/1.0\r\nNats-TTL: ", ttl, "m\r\n\r\n", "")
        payloads = pa.array(random.integers(0, 2**62, count)).cast(pa.string()).cast(pa.binary())
        raw = pa.table(
            {
                "subject": pc.binary_join_element_wise("orders.", numbers, ""),
                "headers": blocks.cast(pa.binary()),
                "payload": payloads,
                "ts_ns": FIRST_TS_NS + np.arange(start, start + count) * STEP_NS,
            }
        )
        yield message_rows.complete_rows(raw, "file")


if __name__ == "__main__":
    sys.exit(main())
