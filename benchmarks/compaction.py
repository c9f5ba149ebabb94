"""`python -m benchmarks.compaction`: small files become one a segment, hollow segments one, and a month every night."""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import retention
from benchmarks import report
from benchmarks.comparing import choices, compare, say
from benchmarks.contenders import WHERE, load
from benchmarks.contenders.contender import DeltaContender
from benchmarks.data import (
    fingerprint,
    messages_of,
    payloads,
    survivors,
    table_figures,
    write_config,
)
from benchmarks.meter import Cost, measure
from benchmarks.processes import ContenderError, processes
from benchmarks.tasks import COMPACT_NAMES, FIRST_TS_NS, STEP_NS, STREAM, Task
from benchmarks.ttl import floor
from retention.core import message_rows
from retention.ingest.append import append_rows

NAMES = (*COMPACT_NAMES, "nightly")
SUBJECTS = 2_000
SHORTEST, LONGEST = 100, 1_000
"""Bytes of payloads, drawn evenly."""
KEPT = 0.3
"""The remaining share of hollow segments."""
SPENT = "orders.spent"
"""The purged subject."""
NIGHTLY_OF = ("ours", "deltalake", "delta-spark")
_NO_LIMIT = 1 << 40
_TICK_S = 0.1
"""Longer than a tick of a storage's clock."""
_SEED = 20_260_101


def compact_task(name: str) -> Task:
    """The piece of work of that name."""
    if name == "compact-hollow":
        title = f"neighbouring segments, of which {KEPT:.0%} is left, become one"
        return Task(name, "hollow", "hollow", _NO_LIMIT, title)
    return Task(name, "small", "small", _NO_LIMIT, "the files of each segment become one")


def make_small_files(warehouse: Path, files: int, messages: int, segments: int) -> None:
    """Write a warehouse with one stream: `files` appends of `messages` messages each, in `segments` segments."""
    warehouse.mkdir(parents=True)
    span_ms = files * messages * STEP_NS // segments // 1_000_000
    write_config(warehouse, f"segment_size: 1TiB, segment_span: {span_ms}ms")
    publish(warehouse, range(files), messages, 0.0)


def make_hollow_segments(warehouse: Path, messages: int, segments: int) -> None:
    """Write a warehouse with one stream; most messages of its segments are purged and reclaimed."""
    warehouse.mkdir(parents=True)
    span_ms = messages * STEP_NS // 1_000_000
    write_config(warehouse, f"segment_size: 1TiB, segment_span: {span_ms}ms, grace: 0s")
    publish(warehouse, range(segments + 1), messages, 1 - KEPT)
    opened = retention.open_warehouse(warehouse, engine="local")
    opened.stream(STREAM).purge(SPENT).apply()
    time.sleep(_TICK_S)
    opened.reclaim([STREAM]).apply()


def publish(warehouse: Path, batches: Iterable[int], messages: int, spent: float) -> None:
    """Append batches of messages, with a share of them on the purged subject."""
    stream = retention.open_warehouse(warehouse, engine="local").stream(STREAM)
    names = pa.array([SPENT, *(f"orders.{number}" for number in range(SUBJECTS))])
    for batch in batches:
        random = np.random.default_rng((_SEED, batch))
        drawn = random.integers(1, SUBJECTS, messages) * (random.random(messages) >= spent)
        start = batch * messages
        raw = pa.table(
            {
                "subject": names.take(pa.array(drawn)),
                "headers": pa.nulls(messages, pa.binary()),
                "payload": payloads(random, random.integers(SHORTEST, LONGEST, messages)),
                "ts_ns": FIRST_TS_NS + np.arange(start, start + messages) * STEP_NS,
            }
        )
        append_rows(stream.opened, iter([message_rows.complete_rows(raw, "file")]))


def compare_once(name: str, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All contenders on one piece of work, next to a copy of its bytes."""
    asked, source = compact_task(name), directory / name
    if name == "compact-small":
        make_small_files(source, options.files, options.messages, options.segments)
    else:
        make_hollow_segments(
            source, options.files * options.messages // options.hollow, options.hollow
        )
    before = fingerprint(directory)
    say(f"{name}: {len(before)} files, {sum(length for _, length, _ in before) / 1e6:.0f} MB")
    with processes(options.contenders, directory) as running:
        result = compare(running, source, asked, options.runs)
    if fingerprint(directory) != before:
        raise ContenderError("a contender changed a data file in place, which others share")
    result["before"] = table_figures(sorted(messages_of(source).rglob("segment=*/*.parquet")))
    result["last_seconds"] = last_seconds(source, directory / "read", asked)
    result["contenders"].append(floor(source, directory / "floor", options.runs))
    shutil.rmtree(source)
    return result


def last_seconds(source: Path, place: Path, asked: Task) -> tuple[float, float]:
    """The seconds of this engine to find the last message of every subject, before and after its compaction."""
    ours = load("ours")
    ours.place(source, place, asked)
    before = _seconds_of_latest(place)
    ours.run(place, asked)
    after = _seconds_of_latest(place)
    shutil.rmtree(place)
    return before, after


def _seconds_of_latest(place: Path) -> float:
    seconds = []
    for _ in range(3):
        stream = retention.open_warehouse(place, engine="local").stream(STREAM)
        started = time.perf_counter()
        stream.latest()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def nightly(name: str, place: Path, nights: int, batches: int, messages: int) -> dict[str, Any]:
    """A contender that compacts one growing segment every night: its costs of all nights, and the final figures.

    Args:
        name: the contender.
        place: a new directory.
        nights: the number of nights.
        batches: publishes per day.
        messages: messages per publish.

    Raises:
        ContenderError: messages are lost or duplicated.
    """
    place.mkdir(parents=True)
    write_config(place, "segment_size: 1TiB, segment_span: off, compact: true")
    contender, asked = load(name), compact_task("compact-small")
    if not isinstance(contender, DeltaContender):
        raise ContenderError(f"{name} works on no table to which more can be appended")
    contender.open()
    costs, came, merged = [], 0, 0
    left: set[Path] = set()
    for night in range(nights):
        publish(place, range(night * batches, (night + 1) * batches), messages, 0.0)
        published = set(contender.files(place))
        costs.append(measure(lambda: contender.run(place, asked)))
        came, merged = came + _bytes(published - left), merged - _bytes(published)
        left = set(contender.files(place))
        merged += _bytes(left | published)
    figures = table_figures(sorted(left)) | {"amplification": 1 + merged / came}
    contender.close()
    count, wanted = survivors(sorted(left))[0], nights * batches * messages
    if count != wanted:
        raise ContenderError(f"{name} left {count} of {wanted} messages")
    return {"contender": name, **_sum(costs), **figures}


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _sum(costs: Sequence[Cost]) -> dict[str, float]:
    return {
        field: sum(getattr(cost, field) or 0 for cost in costs)
        for field in ("seconds", "cpu_seconds", "bytes_read", "bytes_written")
    }


def after_text(result: dict[str, Any]) -> str:
    """The figures of the table after each contender, as a Markdown table."""
    rows = [{"contender": "(before)"} | result["before"], *result["contenders"]]
    lines = ["| left by | files | row groups | MB | full scan, seconds |", "|---|---|---|---|---|"]
    lines += [_figures(row) for row in rows if "files" in row]
    before, after = result["last_seconds"]
    return "\n".join([*lines, "", f"`messages --last`: {before:.3f} s before, {after:.3f} s after"])


def _figures(row: dict[str, Any]) -> str:
    return (
        f"| {row['contender']} | {row['files']:,.0f} | {row['row_groups']:,.0f} | {row['file_bytes'] / 1e6:,.1f} | "
        f"{row['scan_seconds']:.3f} |"
    )


def nightly_text(rows: Sequence[dict[str, Any]]) -> str:
    """The months of all contenders as a Markdown table."""
    ours = rows[0]["seconds"]
    lines = [
        "| | seconds of nights | times ours | processor seconds | MB read | MB written | amplification | files left |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join(
        lines
        + [
            f"| {row['contender']} | {row['seconds']:.2f} | {row['seconds'] / ours:.2f} | {row['cpu_seconds']:.2f} | "
            f"{row['bytes_read'] / 1e6:,.0f} | {row['bytes_written'] / 1e6:,.0f} | {row['amplification']:.2f} | "
            f"{row['files']:,.0f} |"
            for row in rows
        ]
    )


def _results(directory: Path, options: argparse.Namespace) -> Iterator[str]:
    for name in options.only:
        if name == "nightly":
            taking_part = [one for one in NIGHTLY_OF if one in options.contenders]
            rows = [
                nightly(one, directory / one, options.nights, options.batches, options.messages)
                for one in taking_part
            ]
            yield f"### `nightly`: {options.nights} nights, {options.batches} publishes a day, one segment\n"
            yield nightly_text(rows)
        else:
            result = compare_once(name, directory, options)
            yield report.markdown([result]) + "\n\n" + after_text(result)
            if result["failed"] or not result["equal"]:
                raise ContenderError(f"{name}: a contender failed, or left other messages")


def main() -> int:
    """Measure, and print Markdown tables; 1 if messages differ or a contender failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--messages", type=int, default=700, help="in each file")
    parser.add_argument("--segments", type=int, default=8, help="of small files")
    parser.add_argument("--hollow", type=int, default=40, help="hollow segments")
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--batches", type=int, default=24, help="publishes of each day")
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each contender")
    parser.add_argument("--only", type=choices(NAMES), default=NAMES)
    parser.add_argument("--contenders", type=choices(tuple(WHERE)), default=tuple(WHERE))
    parser.add_argument("--directory", type=Path, help="where tables and copies lie")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compaction-", dir=options.directory) as directory:
        try:
            for text in _results(Path(directory), options):
                print(text + "\n", flush=True)
        except ContenderError as error:
            say(str(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
