"""`python -m benchmarks.delta_log`: the cost of reading a log, by ours and by deltalake in turns, and peak memory."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from deltalake import DeltaTable

from retention.delta import snapshot
from retention.delta.statistics import bounds
from retention.startup import spare_pandas

_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_COLUMNS = {"id": "long", "ts": "timestamp", "key": "string", "size": "integer", "day": "date"}
_APPENDS = 20
"""Entries after the checkpoint, of a file each."""


def main() -> None:
    options = _parser().parse_args()
    if options.only:
        spare_pandas()
        if options.only == "peak":
            _read(str(options.directory))
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        else:
            _turns(str(options.directory), options.rounds)
        return
    with tempfile.TemporaryDirectory(prefix="delta-log-", dir=options.directory) as folder:
        for form in ("checkpoint", "entry"):
            root = Path(folder, form)
            _make(root, options.files, with_checkpoint=form == "checkpoint")
            print(f"{options.files:,} files in {form}", flush=True)
            _child(root, "turns", options.rounds)
            print("peak of ours, MB: ", end="", flush=True)
            _child(root, "peak", options.rounds)


def _turns(root: str, rounds: int) -> None:
    """Print the median processor seconds of each piece of work, done in turns."""
    works: dict[str, Callable[[], Any]] = {
        "ours: read": lambda: snapshot.read(root),
        "ours: read and bounds": lambda: _read(root),
        "deltalake: open": lambda: DeltaTable(root),
        "deltalake: open and get_add_actions": lambda: DeltaTable(root).get_add_actions(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            before = time.process_time()
            work()
            seconds[name].append(time.process_time() - before)
    for name, each in seconds.items():
        print(f"  {name:38} {median(each):7.3f} s, best {min(each):7.3f} s")


def _read(root: str) -> None:
    state = snapshot.read(root)
    found = bounds(state, ("ts",), "timestamp")
    assert found.max.null_count == 0  # noqa: S101


def _child(root: Path, only: str, rounds: int) -> None:
    command = [sys.executable, "-m", "benchmarks.delta_log", "--only", only]
    subprocess.run([*command, f"--rounds={rounds}", f"--directory={root}"], check=True)


def _make(root: Path, number: int, *, with_checkpoint: bool) -> None:
    """Make a log of files with statistics of four columns, partitioned by day, without the files."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    with (log / f"{0:020d}.json").open("w", encoding="utf-8") as entry:
        for action in _described():
            entry.write(json.dumps(action) + "\n")
        for index in range(number):
            entry.write(json.dumps(_add(index), separators=(",", ":")) + "\n")
    if with_checkpoint:
        DeltaTable(root).create_checkpoint()
        for version in range(1, _APPENDS + 1):
            (log / f"{version:020d}.json").write_text(json.dumps(_add(number + version)) + "\n")


def _described() -> Iterator[dict[str, Any]]:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _COLUMNS.items()]
    yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    yield {
        "metaData": {
            "id": "benchmark",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": ["day"],
            "configuration": {},
            "createdTime": 0,
        }
    }


def _add(index: int) -> dict[str, Any]:
    first = _BEGIN + timedelta(minutes=index)
    last = first + timedelta(seconds=59, milliseconds=999)
    least = {"id": index * 1000, "ts": _text(first), "key": f"key-{index:08d}", "size": 7}
    most = {"id": index * 1000 + 999, "ts": _text(last), "key": f"key-{index:08d}-9", "size": 900}
    stats = {"numRecords": 1000, "minValues": least, "maxValues": most}
    stats["nullCount"] = dict.fromkeys(least, 0)
    day = str(first.date())
    return {
        "add": {
            "path": f"day={day}/part-{index % 200:05d}-{index:08x}-9a1b-4c3d-8e7f-0123456789ab.c000.snappy.parquet",
            "partitionValues": {"day": day},
            "size": 100_000 + index,
            "modificationTime": 1_704_067_200_000 + index,
            "dataChange": True,
            "stats": json.dumps(stats, separators=(",", ":")),
        }
    }


def _text(instant: datetime) -> str:
    return instant.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--directory",
        type=Path,
        help="where the tables are made (default: the temporary directory)",
    )
    parser.add_argument("--only", choices=["turns", "peak"], help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
