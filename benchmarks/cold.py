"""`python -m benchmarks.cold`: how long new processes take for a small stream of which no row is needed."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import retention
from benchmarks.comparing import choices
from retention.engines.spark.java import launch_environment

DAY_NS = 86_400 * 10**9
_ROOT = Path(__file__).parents[1]
_SCRIPTS = Path(sys.executable).parent
NAMES = {
    "libraries": "libraries imported, nothing done",
    "quiet": "`jobs.retain`, nothing is due",
    "drop": "`jobs.retain`, half of the segments go",
    "session": "Spark session started and stopped",
    "submit": "`spark-submit` of an empty script",
    "submit-drop": "`spark-submit jobs/retain.py`, half of the segments go",
}
"""Short names of the started programs, with descriptions."""
_PR_SET_CHILD_SUBREAPER = 36
_LIMIT_S = 120
"""The time limit of a process, after which it counts as hung."""
_LIBRARIES = "import deltalake, numpy, pyarrow.parquet, pydantic.main, ruamel.yaml"
_SESSION = """
from pyspark.sql import SparkSession
SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate().stop()
"""


def make_stream(warehouse: Path) -> None:
    """Sixty segments of a day each; the older half is due."""
    warehouse.mkdir()
    stream = {"name": "SMALL", "subjects": ["small.>"], "max_age": "30d", "segment_span": "1d"}
    (warehouse / "retention.yaml").write_text(json.dumps({"streams": [stream]}))
    # Half a step off the due instant, so that no segment is cut; a cut needs rows, and Spark.
    newest = time.time_ns() + DAY_NS // 20
    lines = (
        json.dumps(
            {"subject": "small.a", "data": "x" * 100, "ts_ns": newest - number * DAY_NS // 10}
        )
        for number in range(600, 0, -1)
    )
    retention.open_warehouse(warehouse).stream("SMALL").publish(lines)


def commands(warehouse: Path, empty: Path) -> dict[str, list[str]]:
    """The commands, by the short names of `NAMES`."""
    asked = ["--warehouse", str(warehouse)]
    job = [sys.executable, "-m", "retention.jobs.retain", *asked]
    submit = [str(_SCRIPTS / "spark-submit"), "--master", "local[*]"]
    return {
        "libraries": [sys.executable, "-c", _LIBRARIES],
        "quiet": job,
        "drop": job,
        "session": [sys.executable, "-c", _SESSION],
        "submit": [*submit, str(empty)],
        "submit-drop": [*submit, str(_ROOT / "jobs" / "retain.py"), *asked],
    }


def once(command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of a new process, and processor seconds of it and its descendants."""
    before, started = _used(), time.perf_counter()
    subprocess.run(
        command,
        check=True,
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_LIMIT_S,
    )
    seconds = time.perf_counter() - started
    _await_orphans()
    return seconds, _used() - before


def measure(
    directory: Path, only: Sequence[str], runs: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds and processor seconds of each command, in turns, after one uncounted turn."""
    source, warehouse, empty = directory / "source", directory / "warehouse", directory / "empty.py"
    make_stream(source)
    empty.write_text("")
    environment = os.environ | launch_environment() | {"PYTHONPATH": str(_ROOT)}
    # An installed program does not compile its modules at start.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PATH"] = f"{_SCRIPTS}:{environment['PATH']}"
    started = {name: commands(warehouse, empty)[name] for name in only}
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in started}
    for number in range(runs + 1):
        for name, command in started.items():
            shutil.rmtree(warehouse, ignore_errors=True)
            shutil.copytree(source, warehouse)
            if name == "quiet":
                # The first pass removes, and the second remembers that nothing is left to remove.
                once(command, environment)
                once(command, environment)
            cost = once(command, environment)
            took[name] += [cost] if number else []
    return took


def main() -> None:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each command")
    parser.add_argument(
        "--only", type=choices(tuple(NAMES)), default=tuple(NAMES), help=", ".join(NAMES)
    )
    asked = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="cold-") as directory:
        took = measure(Path(directory), asked.only, asked.runs)
    print("| a new process | seconds (median, fastest to slowest) | processor seconds |")
    print("|---|---|---|")
    for name, costs in took.items():
        seconds, processor = zip(*costs, strict=True)
        span = f"{min(seconds):.3f} to {max(seconds):.3f}"
        middle = statistics.median(seconds)
        print(f"| {NAMES[name]} | {middle:.3f} ({span}) | {statistics.median(processor):.3f} |")


def adopt_orphans() -> None:
    """Adopt processes whose parent ends first, such as the JVM of a session (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _await_orphans() -> None:
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _used() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


if __name__ == "__main__":
    main()
