"""`python -m benchmarks.memory`: peak memory of a pass over millions of subjects and far more bytes than that."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import retention
from benchmarks.data import copy_warehouse, messages_of, survivors, write_config
from benchmarks.meter import tree
from benchmarks.tasks import FIRST_TS_NS, STREAM
from retention.core import message_rows
from retention.engines.spark.java import launch_environment
from retention.ingest.append import append_rows

SEGMENT = 250_000
STEP_NS = 10**6
JVM_MEMORY = "1g"
_SEED = 20_250_101
_RUN = """
import json, sys, time
from retention import open_warehouse
from benchmarks.memory import session
place, engine = sys.argv[1:]
running = session() if engine == "spark" else None
started = time.perf_counter()
[outcome] = open_warehouse(place, engine=engine).apply()
if outcome.error is not None:
    raise outcome.error
print(json.dumps({"seconds": time.perf_counter() - started}))
"""


@dataclass(frozen=True)
class Size:
    """How large the stream is."""

    messages: int
    subjects: int
    payload: int

    @property
    def gibibytes(self) -> float:
        """Payloads, not compressed."""
        return self.messages * self.payload / 2**30


class Watch:
    """The largest resident memory of a process and of those below it, looked at twenty times a second."""

    def __init__(self, process: int) -> None:
        self.peaks: dict[tuple[str, int], int] = {}
        self._root = Path("/proc", str(process))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def mebibytes(self, kind: str) -> float:
        """The largest of a kind of process: `driver`, `java` or `worker`."""
        found = (peak for (what, _), peak in self.peaks.items() if what == kind)
        return max(found, default=0) / 1024

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for directory in tree(self._root):
                with suppress(FileNotFoundError, ProcessLookupError, IndexError):
                    status = (directory / "status").read_text(encoding="utf-8")
                    peak = int(status.split("VmHWM:")[1].split()[0])
                    name = status.split()[1]
                    kind = "driver" if directory == self._root else "java"
                    key = (
                        kind if name == "java" or kind == "driver" else "worker",
                        int(directory.name),
                    )
                    self.peaks[key] = max(peak, self.peaks.get(key, 0))


def session() -> Any:
    """A Spark session whose JVM, driver and executor in one, has little memory."""
    from pyspark.sql import SparkSession

    os.environ.update(launch_environment())
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", JVM_MEMORY)
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def make_stream(warehouse: Path, size: Size) -> tuple[int, int]:
    """Subjects drawn evenly, a file for each 250,000 messages; how many MaxMsgsPerSubject 1 leaves, and their sum."""
    warehouse.mkdir()
    write_config(warehouse, f"segment_size: 1TiB, segment_span: {SEGMENT * STEP_NS // 10**6}ms")
    last = np.zeros(size.subjects, dtype=np.int64)
    stream = retention.open_warehouse(warehouse, engine="local").stream(STREAM)
    append_rows(stream.opened, _batches(size, last))
    write_config(warehouse, "max_msgs_per_subject: 1")
    return int((last > 0).sum()), int(last.sum())


def measure(warehouse: Path, engine: str) -> tuple[dict[str, float], Watch]:
    """One pass in a new process: seconds, messages removed, and what memory it took."""
    command = [sys.executable, "-c", _RUN, str(warehouse), engine]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process,
        Watch(process.pid) as watch,
    ):
        told = process.communicate()[0]
    if process.returncode:
        raise RuntimeError(f"the pass with engine {engine} ended with {process.returncode}")
    return json.loads(told), watch


def main() -> None:
    """Make the stream, measure both engines, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--subjects", type=int, default=6_500_000, help="that are drawn from")
    parser.add_argument("--payload", type=int, default=560, help="bytes of each message")
    parser.add_argument("--engines", nargs="*", default=["local", "spark"])
    asked = parser.parse_args()
    size = Size(asked.messages, asked.subjects, asked.payload)
    with tempfile.TemporaryDirectory(prefix="memory-") as directory:
        source = Path(directory, "source")
        expected = make_stream(source, size)
        print(
            f"{size.messages:,} messages, {size.gibibytes:.1f} GiB of payloads; MaxMsgsPerSubject 1 leaves "
            f"{expected[0]:,}, one of each subject.\n"
        )
        print("| engine | seconds | peak MiB: Python | JVM | largest Python worker |")
        print("|---|---|---|---|---|")
        for engine in asked.engines:
            warehouse = Path(directory, engine)
            copy_warehouse(source, warehouse)
            told, watch = measure(warehouse, engine)
            if _left(warehouse) != expected:
                raise AssertionError(
                    f"{engine} leaves other messages than the last of each subject"
                )
            peaks = " | ".join(
                f"{watch.mebibytes(kind):,.0f}" for kind in ("driver", "java", "worker")
            )
            print(f"| {engine} | {told['seconds']:.1f} | {peaks} |", flush=True)


def _left(warehouse: Path) -> tuple[int, int]:
    stream = retention.open_warehouse(warehouse).stream(STREAM)
    live = stream.opened.store.snapshot().files["path"].to_pylist()
    return survivors([messages_of(warehouse) / path for path in live])


def _batches(size: Size, last: np.ndarray) -> Iterator[pa.Table]:
    """The stream's messages; `last` learns the last sequence of each subject."""
    random = np.random.default_rng(_SEED)
    block = pa.py_buffer(random.bytes(size.payload * 1_000 // 2).hex().encode())
    for start in range(0, size.messages, SEGMENT):
        count = min(SEGMENT, size.messages - start)
        drawn = random.integers(0, size.subjects, count)
        last[drawn] = np.arange(start + 1, start + count + 1)
        offsets = pa.py_buffer(np.arange(1_001, dtype=np.int32) * size.payload)
        pool = pa.Array.from_buffers(pa.binary(), 1_000, [None, offsets, block])
        numbers = pa.array(drawn).cast(pa.string())
        raw = pa.table(
            {
                "subject": pc.binary_join_element_wise("devices.", numbers, ".state", ""),
                "headers": pa.nulls(count, pa.binary()),
                "payload": pool.take(pa.array(random.integers(0, 1_000, count))),
                "ts_ns": FIRST_TS_NS + np.arange(start, start + count) * STEP_NS,
            }
        )
        yield message_rows.complete_rows(raw, "file")


if __name__ == "__main__":
    main()
