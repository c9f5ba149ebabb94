"""`python -m benchmarks.ttl`: messages whose TTLs are over leave a stream, here and there or file by file."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import retention
from benchmarks import report
from benchmarks.comparing import choices, compare, say
from benchmarks.contenders import WHERE
from benchmarks.data import fingerprint, messages_of, payloads, ttl_settings, write_config
from benchmarks.meter import measure
from benchmarks.processes import ContenderError, processes
from benchmarks.tasks import FIRST_TS_NS, STEP_NS, STREAM, TTL_NAMES, Size, Task
from retention.core import message_rows
from retention.ingest.append import append_rows

SUBJECTS = 2_000
SHORTEST, LONGEST = 100, 1_000
"""Bytes of payloads, drawn evenly."""
MINUTE_NS = 60 * 10**9
EVEN_MINUTES = 30 * 24 * 60
"""The TTL of every message if whole segments are due."""
SCATTERED_MINUTES = (24 * 60, 21 * 24 * 60)
"""The range of uniformly drawn TTLs if a part of every segment is due."""
DUE = 0.05
_SEED = 20_250_102


def ttl_task(name: str, size: Size) -> Task:
    """The piece of work of that name on tables of that size."""
    dropped = size.segments * 3 // 4
    if name == "ttl-drop":
        limit = FIRST_TS_NS + dropped * size.messages * STEP_NS + EVEN_MINUTES * MINUTE_NS
        title = f"all TTLs of {dropped} of {size.segments} segments are over"
        return Task(name, "ttl", "even", limit - STEP_NS // 2, title)
    title = f"{DUE:.0%} of the TTLs are over, all over the stream"
    limit = int(np.quantile(_deadlines(size), DUE, method="lower"))
    if name == "ttl-grouped":
        title += "; files hold messages of about the same deadline (`layout: deadline`)"
        return Task(name, "ttl", "grouped", limit, title, "deadline")
    return Task(name, "ttl", "scattered", limit, title)


def make_ttl_table(warehouse: Path, size: Size, asked: Task) -> None:
    """Write a warehouse with one stream, with the TTLs of a piece of work."""
    warehouse.mkdir(parents=True)
    span_ms = size.messages * STEP_NS // 1_000_000
    settings = f"segment_size: 1TiB, segment_span: {span_ms}ms, {ttl_settings(asked.layout)}"
    write_config(warehouse, settings)
    stream = retention.open_warehouse(warehouse, engine="local").stream(STREAM)
    minutes = np.full(size.total, EVEN_MINUTES) if asked.name == "ttl-drop" else _ttls(size)
    append_rows(stream.opened, _batches(size, minutes))


def floor(source: Path, place: Path, runs: int) -> dict[str, Any]:
    """The cost of copying and syncing the same data files, for the table of a comparison."""
    files = sorted(messages_of(source).rglob("segment=*/*.parquet"))
    place.mkdir()

    def copied() -> None:
        for number, file in enumerate(files):
            with file.open("rb") as whole, (place / str(number)).open("wb") as target:
                shutil.copyfileobj(whole, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())

    costs = []
    for _ in range(runs):
        os.sync()
        costs.append(vars(measure(copied)) | {"messages": 0})
    shutil.rmtree(place)
    return report.summary("(all files copied byte by byte)", costs)


def _ttls(size: Size) -> np.ndarray:
    """The TTL of each message, minutes."""
    return np.random.default_rng(_SEED).integers(*SCATTERED_MINUTES, size.total)


def _deadlines(size: Size) -> np.ndarray:
    return FIRST_TS_NS + np.arange(size.total) * STEP_NS + _ttls(size) * MINUTE_NS


def _batches(size: Size, minutes: np.ndarray) -> Iterator[pa.Table]:
    random = np.random.default_rng(_SEED + 1)
    names = pa.array([f"orders.{number}" for number in range(SUBJECTS)])
    for start in range(0, size.total, size.messages):
        ttl = pa.array(minutes[start : start + size.messages]).cast(pa.string())
        blocks = pc.binary_join_element_wise("NATS/1.0\r\nNats-TTL: ", ttl, "m\r\n\r\n", "")
        raw = pa.table(
            {
                "subject": names.take(pa.array(random.integers(0, SUBJECTS, size.messages))),
                "headers": blocks.cast(pa.binary()),
                "payload": payloads(random, random.integers(SHORTEST, LONGEST, size.messages)),
                "ts_ns": FIRST_TS_NS + np.arange(start, start + size.messages) * STEP_NS,
            }
        )
        yield message_rows.complete_rows(raw, "file")


def _measured(directory: Path, size: Size, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with processes(options.contenders, directory) as running:
        for asked in (ttl_task(name, size) for name in options.only):
            source = directory / asked.table
            make_ttl_table(source, size, asked)
            before = fingerprint(directory)
            say(f"{asked.name}: {sum(length for _, length, _ in before) / 1e6:.0f} MB")
            result = compare(running, source, asked, options.runs)
            if asked.name != "ttl-drop":
                result["contenders"].append(floor(source, directory / "floor", options.runs))
            if fingerprint(directory) != before:
                raise ContenderError("a contender changed a data file in place, which others share")
            shutil.rmtree(source)
            yield result


def main() -> int:
    """Measure, and print a Markdown table for each piece of work; 1 if survivors differ or a contender failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ttl", description=__doc__)
    parser.add_argument("--messages", type=int, default=116_000, help="in each segment")
    parser.add_argument("--segments", type=int, default=12)
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each contender")
    parser.add_argument("--only", type=choices(TTL_NAMES), default=TTL_NAMES)
    parser.add_argument("--contenders", type=choices(tuple(WHERE)), default=tuple(WHERE))
    parser.add_argument("--directory", type=Path, help="where tables and copies lie")
    options = parser.parse_args()
    size = Size(options.messages, options.segments, SUBJECTS, SUBJECTS)
    with tempfile.TemporaryDirectory(prefix="ttl-", dir=options.directory) as directory:
        results = []
        for result in _measured(Path(directory), size, options):
            print(report.markdown([result]) + "\n", flush=True)
            results.append(result)
    return 1 if any(result["failed"] or not result["equal"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
