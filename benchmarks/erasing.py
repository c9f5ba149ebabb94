"""`python -m benchmarks.erasing`: an erasure of many subjects, with its proof, beside a rewrite of the same files.

The rewrites leave older versions, statistics, digests and history as they are, and search nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from retention import open_warehouse

AT_A_TIME = 100_000
_PAYLOAD_BYTES = 40
_MEASURED = """
import json, resource, shutil, sys, time
from pathlib import Path
folder, contender = Path(sys.argv[1]), sys.argv[2]
subjects = (folder / "subjects").read_text().split()
if contender == "erase":
    from retention import open_warehouse
    stream = open_warehouse(folder / "lake", engine="local").stream("BIG")
elif contender == "deltalake":
    from deltalake import DeltaTable
    table = DeltaTable(str(folder / "copy"))
else:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
start = time.process_time(), time.perf_counter()
if contender == "erase":
    report = stream.erase(subjects=subjects, reason="request").apply()
    assert report.is_done, report
elif contender == "deltalake":
    named = ", ".join(f"'{subject}'" for subject in subjects)
    table.delete(f"subject IN ({named})")
else:
    for file in sorted((folder / "copy").rglob("*.parquet")):
        rows = pq.read_table(file)
        stays = pc.invert(pc.is_in(rows["subject"], value_set=pa.array(subjects)))
        pq.write_table(rows.filter(stays), file.with_suffix(".new"), compression="zstd")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
spent = time.process_time() - start[0], time.perf_counter() - start[1]
print(json.dumps({"processor_s": spent[0], "s": spent[1], "peak_mb": peak}))
"""
_CONTENDERS = ("pyarrow", "deltalake", "erase")


def make_stream(folder: Path, table_format: str, messages: int, subjects: int, erased: int) -> None:
    """Make a stream with messages of random subjects and a list of those to erase."""
    stream = {"name": "BIG", "subjects": ["orders.>"], "format": table_format}
    config = json.dumps({"warehouse": ".", "streams": [stream]})
    (folder / "lake").mkdir()
    (folder / "lake" / "retention.yaml").write_text(config, encoding="utf-8")
    opened = open_warehouse(folder / "lake", engine="local").new_stream("BIG")
    rng = np.random.default_rng(1)
    for first in range(0, messages, AT_A_TIME):
        rows = min(AT_A_TIME, messages - first)
        opened.append(
            pa.table(
                {
                    "subject": list(map(subject_of, rng.integers(0, subjects, rows))),
                    "payload": [rng.bytes(_PAYLOAD_BYTES).hex().encode() for _ in range(rows)],
                }
            )
        )
    wanted = range(0, subjects, max(subjects // erased, 1))[:erased]
    (folder / "subjects").write_text("\n".join(map(subject_of, wanted)), encoding="utf-8")


def subject_of(number: int) -> str:
    """The subject of a customer."""
    return f"orders.customer-{number:07}"


def make_copies(folder: Path) -> None:
    """Write the live rows as a Delta table without features, for the other tools."""
    from deltalake import write_deltalake

    stream = open_warehouse(folder / "lake", engine="local").stream("BIG")
    for rows in stream.messages():
        write_deltalake(str(folder / "copy"), rows, mode="append")


def measured(folder: Path, contender: str) -> dict[str, float]:
    """The costs of one contender in a process of its own, on a copy of the folder."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        copied = shutil.copytree(folder, Path(directory) / "copied")
        command = [sys.executable, "-c", _MEASURED, str(copied), contender]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        return dict(json.loads(done.stdout))


def medians(costs: Sequence[dict[str, float]]) -> Iterable[float]:
    """The median of each figure."""
    return (statistics.median(cost[name] for cost in costs) for name in costs[0])


def main() -> None:
    """Make a stream, measure in turns, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.erasing", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--subjects", type=int, default=100_000)
    parser.add_argument("--erased", type=int, default=1_000)
    parser.add_argument("--format", default="delta")
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        folder = Path(directory)
        make_stream(folder, asked.format, asked.messages, asked.subjects, asked.erased)
        make_copies(folder)
        costs: dict[str, list[dict[str, float]]] = {name: [] for name in _CONTENDERS}
        for _ in range(asked.runs):
            for name in _CONTENDERS:
                costs[name].append(measured(folder, name))
    print("| contender | processor s | s | peak MB |\n|---|---|---|---|")
    for name in _CONTENDERS:
        processor, seconds, peak = medians(costs[name])
        print(f"| {name} | {processor:.1f} | {seconds:.1f} | {peak:,.0f} |")


if __name__ == "__main__":
    main()
