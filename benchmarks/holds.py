"""`python -m benchmarks.holds`: placing a legal hold of a million ranges, and a pass under it beside one without."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from retention import open_warehouse

AT_A_TIME = 250_000
_MEASURED = """
import json, resource, sys, time
import numpy as np
from retention import open_warehouse
warehouse = open_warehouse(sys.argv[1], engine="local")
ranges = int(sys.argv[3])
start = time.process_time()
if sys.argv[2] == "hold":
    first = np.arange(1, 2 * ranges, 2)
    warehouse.hold("BIG", reason="case", ranges=np.stack([first, first], axis=1))
    removed = 0
else:
    [outcome] = warehouse.apply()
    if outcome.error is not None:
        raise outcome.error
    removed = outcome.value.removed_messages
spent = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"removed": removed, "seconds": spent, "peak_mb": peak}))
"""


def make_stream(folder: Path, messages: int) -> None:
    """Make a stream of which a pass removes all messages but one."""
    config = {"warehouse": ".", "streams": [{"name": "BIG", "subjects": ["big.>"], "max_msgs": 1}]}
    (folder / "retention.yaml").write_text(json.dumps(config), encoding="utf-8")
    stream = open_warehouse(folder, engine="local").new_stream("BIG")
    for first in range(0, messages, AT_A_TIME):
        rows = min(AT_A_TIME, messages - first)
        subjects = [f"big.{number % 1000}" for number in range(rows)]
        payloads = pa.array(np.full(rows, b"payload", dtype=object), pa.binary())
        stream.append(pa.table({"subject": subjects, "payload": payloads}))


def measured(folder: Path, act: str, ranges: int) -> dict[str, float]:
    """The processor seconds and the peak memory of an act in a process of its own."""
    command = [sys.executable, "-c", _MEASURED, str(folder), act, str(ranges)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Make streams, measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.holds", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--ranges", type=int, nargs="*", default=[0, 1, 1_000_000])
    asked = parser.parse_args()
    print("| ranges | hold, s (peak MB) | pass, s (peak MB) | removed |")
    print("|---|---|---|---|")
    for ranges in asked.ranges:
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
            folder = Path(directory)
            make_stream(folder, asked.messages)
            placed = measured(folder, "hold", ranges) if ranges else None
            hold = "" if placed is None else f"{placed['seconds']:.2f} ({placed['peak_mb']:,.0f})"
            done = measured(folder, "pass", ranges)
            print(
                f"| {ranges:,} | {hold} | {done['seconds']:.2f} ({done['peak_mb']:,.0f}) | {done['removed']:,} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
