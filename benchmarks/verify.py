"""`python -m benchmarks.verify`: processor seconds of `verify` for a GiB of files, beside `sha256sum` of the same."""

from __future__ import annotations

import argparse
import json
import resource
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
    "result = open_warehouse(sys.argv[1], engine='local').stream('BIG').verify(); "
    "assert result.verdict == 'ok', result"
)
OPEN = "import retention.verify.run, retention.api.stream"


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


def processor_seconds(*command: str) -> float:
    """The processor seconds of a command, its own and the system's for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Make streams, measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify", description=__doc__)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--payload", type=int, nargs="*", default=[100, 1_000])
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    print("| bytes a payload | MiB | sha256sum, s a GiB | verify, s a GiB | times |")
    print("|---|---|---|---|---|")
    for payload in asked.payload:
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
            folder = Path(directory)
            make_stream(folder, asked.files, asked.rows, payload)
            data = [str(file) for file in folder.rglob("messages/partition=0/**/*.parquet")]
            size = sum(Path(file).stat().st_size for file in data)
            runs = range(asked.runs)
            sums = statistics.median(processor_seconds("sha256sum", *data) for _ in runs)
            start = statistics.median(processor_seconds(sys.executable, "-c", OPEN) for _ in runs)
            whole = statistics.median(
                processor_seconds(sys.executable, "-c", VERIFY, str(folder)) for _ in runs
            )
            verified = whole - start
            print(
                f"| {payload:,} | {size / 2**20:,.0f} | {sums * GIB / size:.2f} | {verified * GIB / size:.2f} "
                f"| {verified / sums:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
