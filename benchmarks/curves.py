"""`python -m benchmarks.curves`: the cost of each kind of work at a size, and at ten and a hundred times that size.

Each size of each kind is measured in a process of its own, on fresh copies of its source, after one uncounted run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

import retention
from benchmarks import acks, compaction, erasing, iggy_logs, metadata, ttl, verify
from benchmarks.comparing import choices, say
from benchmarks.contenders.ours import Local
from benchmarks.data import copy_warehouse, make_table
from benchmarks.meter import forget_peak, measure, peak_mebibytes
from benchmarks.tasks import NAMES, STREAM, Size, Task, task

TIMES = (1, 10, 100)
RUNS = 3
_SEGMENTS, _TTL_SEGMENTS, _SMALL_SEGMENTS = 24, 12, 8
_SUBJECTS, _OFTEN = 2_000, 3
_SMALL, _HOLLOW = 70, 40
_ROWS, _PAYLOAD = 1_000, 100
_ERASED_EVERY, _ERASED_FILES = 100, 20
_PUBLISHES = 20

_PROCESS = Path("/proc/self")

Work = Callable[[], object]
Placed = Callable[[Path], Work]
"""Puts a fresh copy at a place that does not exist, and returns the work on it."""


@dataclass(frozen=True)
class Curve:
    """A kind of work at several sizes."""

    unit: str
    """The unit of sizes."""
    smallest: int
    prepare: Callable[[Path, int], Placed]
    """Makes the source of a size in a directory."""


def _on_copy(source: Path, work: Callable[[Path], object]) -> Placed:
    def placed(place: Path) -> Work:
        copy_warehouse(source, place)
        return partial(work, place)

    return placed


def _of_contender(source: Path, work: Task) -> Placed:
    def placed(place: Path) -> Work:
        Local().place(source, place, work)
        return partial(Local().run, place, work)

    return placed


def _limited(name: str, folder: Path, messages: int) -> Placed:
    size = Size(messages // _SEGMENTS, _SEGMENTS, _SUBJECTS, messages // _OFTEN)
    subjects = size.many_subjects if name == "last-many" else size.subjects
    total_bytes = make_table(folder / "source", size, subjects)
    return _of_contender(folder / "source", task(name, size, total_bytes))


def _expired(name: str, folder: Path, messages: int) -> Placed:
    size = Size(messages // _TTL_SEGMENTS, _TTL_SEGMENTS, _SUBJECTS, _SUBJECTS)
    work = ttl.ttl_task(name, size)
    ttl.make_ttl_table(folder / "source", size, work)
    return _of_contender(folder / "source", work)


def _small(folder: Path, files: int) -> Placed:
    compaction.make_small_files(folder / "source", files, _SMALL, _SMALL_SEGMENTS)
    return _of_contender(folder / "source", compaction.compact_task("compact-small"))


def _hollow(folder: Path, messages: int) -> Placed:
    compaction.make_hollow_segments(folder / "source", messages // _HOLLOW, _HOLLOW)
    return _of_contender(folder / "source", compaction.compact_task("compact-hollow"))


def _planned(place: Path, instant: int) -> None:
    for outcome in retention.open_warehouse(place).plan(None, instant):
        if outcome.error is not None:
            raise outcome.error


def _first_plan(folder: Path, segments: int) -> Placed:
    metadata.make_stream(folder / "source", segments)
    return _on_copy(
        folder / "source", partial(_planned, instant=metadata.instants(segments)["ten segments"])
    )


def _later_plan(folder: Path, segments: int) -> Placed:
    metadata.make_stream(folder / "source", segments)
    instants = metadata.instants(segments)
    _planned(folder / "source", instants["nothing, as an earlier pass found"])
    return _on_copy(folder / "source", partial(_planned, instant=instants["ten segments"]))


def _streams(folder: Path, streams: int) -> Placed:
    metadata.make_streams(folder / "source", streams, metadata.EACH_STREAM)
    instant = metadata.instants(metadata.EACH_STREAM)["ten segments"]
    return _on_copy(folder / "source", partial(_planned, instant=instant))


def _acks(folder: Path, messages: int) -> Placed:
    acks.make_source(folder / "source", messages)
    log = folder / "acks.parquet"
    acks.write_log(log, messages)

    def settle(place: Path) -> None:
        warehouse = retention.open_warehouse(place, engine="local")
        warehouse.stream(STREAM).consumers.fold(str(log))
        [outcome] = warehouse.apply()
        if outcome.error is not None:
            raise outcome.error

    return _on_copy(folder / "source", settle)


def _publish(folder: Path, publishes: int) -> Placed:
    compaction.make_small_files(folder / "source", publishes, 1, 1)

    def publish(place: Path) -> None:
        compaction.publish(place, range(publishes, publishes + _PUBLISHES), 1, 0.0)

    return _on_copy(folder / "source", publish)


def _iggy_log(folder: Path, mebibytes: int) -> Placed:
    log = folder / "iggy" / "partitions" / "0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    iggy_logs.write_log(log, "0.9", mebibytes << 20)

    def placed(place: Path) -> Work:
        place.mkdir()
        config = {"topics": [{"name": "clicks", "partitions": 1}]}
        (place / "retention.yaml").write_text(json.dumps(config))
        topic = retention.open_warehouse(place, engine="local").topic("clicks")
        return partial(topic.import_iggy_log, folder / "iggy", "0.9")

    return placed


def _verified(folder: Path, files: int) -> Placed:
    (folder / "source").mkdir()
    verify.make_stream(folder / "source", files, _ROWS, _PAYLOAD)

    def whole(place: Path) -> None:
        result = retention.open_warehouse(place, engine="local").stream("BIG").verify()
        if result.verdict != "ok":
            raise AssertionError(result)

    return _on_copy(folder / "source", whole)


def _erased(folder: Path, messages: int) -> Placed:
    size = Size(messages // _ERASED_FILES, _ERASED_FILES, messages // _ERASED_FILES, 0)
    make_table(folder / "source", size, size.subjects, name=erasing.NAME)
    subjects = [erasing.NAME.format(number) for number in range(size.subjects // _ERASED_EVERY)]

    def erase(place: Path) -> None:
        stream = retention.open_warehouse(place, engine="local").stream(STREAM)
        stream.erase(subjects=subjects, reason=erasing.REASON).apply()

    return _on_copy(folder / "source", erase)


CURVES = {
    **{name: Curve("messages", 60_000, partial(_limited, name)) for name in NAMES},
    "ttl": Curve("messages", 12_000, partial(_expired, "ttl")),
    "ttl-grouped": Curve("messages", 12_000, partial(_expired, "ttl-grouped")),
    "compact-small": Curve("files", 20, _small),
    "compact-hollow": Curve("messages", 14_000, _hollow),
    "first plan": Curve("segments", 1_000, _first_plan),
    "later plan": Curve("segments", 1_000, _later_plan),
    "streams due": Curve("streams", 10, _streams),
    "acks": Curve("messages", 6_000, _acks),
    f"{_PUBLISHES} publishes": Curve("earlier publishes", 10, _publish),
    "Iggy log": Curve("MiB", 2, _iggy_log),
    "verify": Curve("files", 3, _verified),
    "erase": Curve("messages", 20_000, _erased),
}


def measured(curve: Curve, size: int, folder: Path, runs: int) -> tuple[float, float]:
    """The median processor seconds of the work at a size, in this process, and the peak memory in MiB.

    Args:
        curve: the kind of work.
        size: in its unit.
        folder: an empty directory.
        runs: the number of counted runs.
    """
    placed = curve.prepare(folder, size)
    used, peak = [], 0.0
    for run in range(runs + 1):
        place = folder / f"run-{run}"
        work = placed(place)
        os.sync()
        pa.default_memory_pool().release_unused()
        forget_peak(_PROCESS)
        cost = measure(work)
        peak = max(peak, peak_mebibytes(_PROCESS))
        shutil.rmtree(place)
        used += [cost.cpu_seconds] if run else []
    return statistics.median(used), peak


def row(name: str, sizes: Sequence[int], done: Sequence[tuple[float, float]]) -> str:
    """A line of the table: sizes, processor seconds, their growth from size to size, peak memory."""
    used = [seconds for seconds, _ in done]
    growth = [later / earlier for earlier, later in pairwise(used)]
    cells = (
        f"{CURVES[name].unit}: {', '.join(f'{size:,}' for size in sizes)}",
        ", ".join(f"{seconds:.3f}" for seconds in used),
        ", ".join(f"{times:.1f}" for times in growth),
        ", ".join(f"{peak:,.0f}" for _, peak in done),
    )
    return f"| `{name}` | {' | '.join(cells)} |"


def main() -> None:
    """Measure every curve in new processes, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves", description=__doc__)
    parser.add_argument("--only", type=choices(tuple(CURVES)), default=tuple(CURVES))
    parser.add_argument("--times", type=int, nargs="*", default=TIMES, help="the smallest size")
    parser.add_argument("--runs", type=int, default=RUNS, help="that are counted, of each size")
    parser.add_argument("--directory", type=Path, help="where sources and copies lie")
    parser.add_argument("--one", type=int, metavar="SIZE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        [name] = options.only
        print(json.dumps(measured(CURVES[name], options.one, options.directory, options.runs)))
        return
    print("| work | size | processor seconds | times from size to size | peak MiB |")
    print("|---|---|---|---|---|", flush=True)
    for name in options.only:
        sizes = [CURVES[name].smallest * times for times in options.times]
        print(row(name, sizes, [_in_process(name, size, options) for size in sizes]), flush=True)


def _in_process(name: str, size: int, options: argparse.Namespace) -> tuple[float, float]:
    say(f"{name}: {size:,} {CURVES[name].unit}")
    command = [sys.executable, "-m", "benchmarks.curves", "--only", name]
    with tempfile.TemporaryDirectory(prefix="curves-", dir=options.directory) as folder:
        told = subprocess.run(
            [*command, "--runs", str(options.runs), "--one", str(size), "--directory", folder],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    seconds, peak = json.loads(told)
    return seconds, peak


if __name__ == "__main__":
    main()
