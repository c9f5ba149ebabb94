"""`python -m benchmarks.markers`: every subject expires and gets a marker, in a real nats-server and in a pass."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import retention
from benchmarks.broker import STEP_NS
from benchmarks.data import copy_warehouse, payloads, write_config
from benchmarks.meter import Watch, forget_peak, peak_mebibytes, server_process
from benchmarks.tasks import FIRST_TS_NS, STREAM
from retention.formats.nats.backup import RAW_ROWS, write_backup
from tests.support.nats_oracle import Nats, server, state_of

MAX_AGE_S, MARKER_TTL_S = 30 * 86_400, 7 * 86_400
LIMITS = f"max_age: {MAX_AGE_S}s, subject_delete_marker_ttl: {MARKER_TTL_S}s"
EVERY_S, WITHIN_S = 0.05, 600.0
"""The polling interval of the server, and the time limit."""
_RETAIN = """
import json, sys, time
from retention import open_warehouse
place, engine = sys.argv[1:]
started = time.perf_counter()
[outcome] = open_warehouse(place, engine=engine).apply()
if outcome.error is not None:
    raise outcome.error
done = {"seconds": time.perf_counter() - started, "markers": outcome.value.markers}
print(json.dumps(done | {"removed": outcome.value.removed_messages}))
"""


def make_rows(messages: int) -> pa.Table:
    """One message of 100 bytes on each subject, a millisecond apart, far older than the limit; shape `RAW_ROWS`."""
    random = np.random.default_rng(20_250_103)
    numbers = np.arange(messages)
    subjects = pc.binary_join_element_wise("orders.", pa.array(numbers).cast(pa.string()), "")
    columns = {
        "seq": numbers + 1,
        "subject": subjects,
        "ts_ns": FIRST_TS_NS + numbers * (STEP_NS // 1_000),
        "headers": pa.nulls(messages, pa.binary()),
        "payload": payloads(random, np.full(messages, 100)),
    }
    return pa.table(columns, schema=RAW_ROWS)


def by_server(nats: Nats, archive: Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the archive, set the limits, and wait until each message is replaced by a marker.

    Returns:
        `seconds` from the request on, `markers`, `removed`, and the server's peak memory in MiB since the request.
    """
    unlimited = {"name": STREAM, "subjects": ["orders.>"], "storage": "file"}
    config = nats.restore_archive(unlimited, dict(state), archive)["config"]
    wanted = {
        "max_age": MAX_AGE_S * 10**9,
        "subject_delete_marker_ttl": MARKER_TTL_S * 10**9,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "deny_purge": False,
    }
    process = server_process()
    forget_peak(process)
    started = time.perf_counter()
    found = nats.update(config | wanted, WITHIN_S)["state"]
    while found["first_seq"] <= state["last_seq"]:
        time.sleep(EVERY_S)
        found = nats.info(STREAM, WITHIN_S)["state"]
    seconds = time.perf_counter() - started
    peak = peak_mebibytes(process)
    nats.delete(STREAM)
    return {
        "seconds": seconds,
        "markers": found["messages"],
        "removed": found["first_seq"] - 1,
        "peak": peak,
    }


def by_pass(source: Path, place: Path, engine: str) -> dict[str, Any]:
    """One pass over a fresh copy in a new process; `seconds` exclude imports."""
    copy_warehouse(source, place)
    write_config(place, LIMITS)
    os.sync()
    command = [sys.executable, "-c", _RETAIN, str(place), engine]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        Watch(Path("/proc", str(process.pid))) as watch,
    ):
        told = process.communicate()[0]
    shutil.rmtree(place)
    if process.returncode:
        raise RuntimeError(f"the pass with engine {engine} ended with {process.returncode}")
    done: dict[str, Any] = json.loads(told)
    return done | {"peak": sum(watch.peaks().values())}


def measure(
    directory: Path, messages: int, runs: int, engines: list[str]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each way in turns, after one uncounted turn.

    Raises:
        AssertionError: server and engine leave different numbers of markers.
    """
    rows = make_rows(messages)
    state = state_of(rows, None, "file")
    archive, source = directory / f"{STREAM}.archive", directory / "source"
    write_backup(archive, state, {}, [rows])
    source.mkdir()
    write_config(source, "")
    retention.open_warehouse(source).stream(STREAM).import_nats_backup(archive)
    del rows
    done: dict[str, list[dict[str, Any]]] = {}
    for number in range(runs + 1):
        took = {"nats-server": _served(archive, state | {"consumer_count": 0})}
        for engine in engines:
            took[f"ours, {engine}"] = by_pass(source, directory / f"{engine}-{number}", engine)
        left = {(one["markers"], one["removed"]) for one in took.values()}
        if left != {(messages, messages)}:
            raise AssertionError(f"markers and removed messages are not {messages}: {left}")
        for name, one in took.items() if number else ():
            done.setdefault(name, []).append(one)
    yield from done.items()


def _served(archive: Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """Run on a server of its own, without state of earlier runs."""
    with server() as nats:
        return by_server(nats, archive, state)


def main() -> None:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.markers", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="each on its own subject")
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each way")
    parser.add_argument("--engines", nargs="*", default=["local"])
    asked = parser.parse_args()
    print("| who | seconds (median, fastest to slowest) | times the server | peak MiB |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="markers-") as directory:
        served = 0.0
        for name, runs in measure(Path(directory), asked.messages, asked.runs, asked.engines):
            seconds = sorted(one["seconds"] for one in runs)
            middle = statistics.median(seconds)
            served = served or middle
            peak = max(one["peak"] for one in runs)
            span = f"{seconds[0]:.2f} to {seconds[-1]:.2f}"
            print(f"| {name} | {middle:.2f} ({span}) | {middle / served:.2f} | {peak:,.0f} |")


if __name__ == "__main__":
    main()
