"""`python -m benchmarks.verify`: processor seconds and memory of `verify`, whole and by sample, beside `sha256sum`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from retention import open_warehouse

GIB = 1 << 30
VERIFY = (
    "import sys; from retention import open_warehouse; "
    "sample = sys.argv[2] if len(sys.argv) > 2 else None; "
    "result = open_warehouse(sys.argv[1], engine='local').stream('BIG').verify(sample=sample); "
    "assert result.verdict == 'ok', result"
)
OPEN = "import retention.verify.run, retention.api.stream"
PEAK = "; print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
"""The statement that prints the peak memory of a process in KiB; that of `wait4` includes its parent's at the fork."""


def make_stream(folder: Path, files: int, rows: int, payload: int) -> None:
    """Make a stream of files with `rows` messages each, whose payloads of `payload` bytes do not compress."""
    config = {"warehouse": ".", "streams": [{"name": "BIG", "subjects": ["big.>"]}]}
    (folder / "retention.yaml").write_text(json.dumps(config))
    stream = open_warehouse(folder, engine="local").new_stream("BIG")
    rng = np.random.default_rng(1)
    subjects = [f"big.{number % 1000}" for number in range(rows)]
    for _ in range(files):
        payloads = [rng.bytes(payload) for _ in range(rows)]
        stream.append(pa.table({"subject": subjects, "payload": pa.array(payloads, pa.binary())}))


def measured(runs: int, *command: str) -> tuple[float, float]:
    """The processor seconds of a command, its own and the system's for it, and the memory it prints; medians."""
    seconds, peaks = [], []
    for _ in range(runs):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        seconds.append(usage.ru_utime + usage.ru_stime)
        peaks.append(int(output) / 1024 if output.strip().isdigit() else 0)
    return statistics.median(seconds), statistics.median(peaks)


def main() -> None:
    """Make streams, measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify", description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--payload", type=int, nargs="*", default=[100, 1_000])
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    print(
        "| bytes a payload | MiB | sha256sum, s a GiB | verify, s a GiB | times | --sample 1%, s | memory, MiB |"
    )
    print("|---|---|---|---|---|---|---|")
    for payload in asked.payload:
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
            folder = Path(directory)
            make_stream(folder, asked.files, asked.rows, payload)
            data = [str(file) for file in folder.rglob("messages/partition=0/**/*.parquet")]
            size = sum(Path(file).stat().st_size for file in data)
            sums, _ = measured(asked.runs, "sha256sum", *data)
            start, idle = measured(asked.runs, sys.executable, "-c", OPEN + PEAK)
            command = (sys.executable, "-c", VERIFY + PEAK, str(folder))
            whole, peak = measured(asked.runs, *command)
            sampled, _ = measured(asked.runs, *command, "1%")
            verified = whole - start
            print(
                f"| {payload:,} | {size / 2**20:,.0f} | {sums * GIB / size:.2f} | {verified * GIB / size:.2f} "
                f"| {verified / sums:.2f} | {sampled - start:.2f} | {peak:,.0f} ({peak - idle:,.0f} more) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
