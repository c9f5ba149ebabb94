"""`python -m benchmarks.erasing`: an erasure of many subjects with its proof, beside rewriting the same table by hand.

Each measurement is a process of its own on a fresh copy. By hand means: every file is read, filtered and written by
pyarrow, or `DELETE` of deltalake; neither searches for what is left, and neither deletes an older version.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from benchmarks.data import copy_warehouse, make_table, messages_of
from benchmarks.meter import Watch, measure, peak_mebibytes
from benchmarks.tasks import STREAM, Size
from retention import open_warehouse

NAME = "orders.customer-{:08}"
REASON = "request 4711 of a customer"
KEY = "subject"
TABLE = "orders"
MEBI = 1 << 20


def main() -> None:
    """Make the tables, measure each way to erase, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.erasing", description=__doc__)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100_000, help="of each file")
    parser.add_argument("--subjects", type=int, default=1_000, help="to erase")
    parser.add_argument("--each", type=int, default=20, help="messages of a subject, on average")
    parser.add_argument("--only", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--run", nargs=2, metavar=("WAY", "PLACE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        way, place = asked.run
        print(json.dumps(_measured(WAYS[way][1], Path(place), asked.subjects)))
        return
    size = Size(asked.rows, asked.files, asked.files * asked.rows // asked.each, 0)
    print("| table | way | processor s | s | MiB read | MiB written | peak MiB | MiB before |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        folder = Path(directory)
        for way in asked.only:
            table, _ = WAYS[way]
            source, place = folder / table, folder / "copy"
            if not source.exists():
                MAKERS[table](source, size)
            copy_warehouse(source, place)
            print(f"| {table} | {way} | {_row(way, place, asked.subjects)} |", flush=True)
            shutil.rmtree(place)


def _row(way: str, place: Path, subjects: int) -> str:
    command = [sys.executable, "-m", "benchmarks.erasing", "--subjects", str(subjects)]
    done = subprocess.run([*command, "--run", way, str(place)], check=True, stdout=subprocess.PIPE)
    cost = json.loads(done.stdout)
    return (
        f"{cost['cpu_seconds']:.2f} | {cost['seconds']:.1f} | {cost['bytes_read'] / MEBI:,.0f} "
        f"| {cost['bytes_written'] / MEBI:,.0f} | {cost['peak']:,.0f} | {cost['idle']:,.0f}"
    )


def _measured(work: Callable[[Path, list[str]], None], place: Path, count: int) -> dict[str, float]:
    subjects = [NAME.format(number) for number in range(count)]
    os.sync()
    idle = peak_mebibytes(Path("/proc/self"))
    with Watch() as watch:
        cost = measure(lambda: work(place, subjects))
    return asdict(cost) | {"peak": watch.peaks()["driver"], "idle": idle}


def _make_stream(place: Path, size: Size, table_format: str) -> None:
    make_table(place, size, size.subjects, f"format: {table_format}", name=NAME)


def _make_table(place: Path, size: Size) -> None:
    """A table of an owner with the messages' subjects and payloads."""
    _make_stream(place / "made", size, "parquet")
    for file in sorted(messages_of(place / "made").rglob("*.parquet")):
        rows = pq.read_table(file, columns=[KEY, "payload", "time"], partitioning=None)
        write_deltalake(str(place / TABLE), rows, mode="append")
    shutil.rmtree(place / "made")
    table = {"name": TABLE, "location": str(place / TABLE), "time": "time", "key": KEY}
    (place / "retention.yaml").write_text(json.dumps({"tables": [{**table, "max_age": "9000d"}]}))


def _erase_messages(place: Path, subjects: list[str]) -> None:
    stream = open_warehouse(place, engine="local").stream(STREAM)
    report = stream.erase(subjects=subjects, reason=REASON).apply()
    if not (report.is_done and report.removed_messages):
        raise AssertionError(report)


def _erase_rows(place: Path, subjects: list[str]) -> None:
    config = json.loads((place / "retention.yaml").read_text())
    config["tables"][0]["location"] = str(place / TABLE)
    (place / "retention.yaml").write_text(json.dumps(config))
    table = open_warehouse(place, engine="local").table(TABLE)
    report = table.erase([{KEY: subject} for subject in subjects], reason=REASON).apply()
    if report.is_done or not report.removed_messages:
        raise AssertionError(report)


def _rewrite_files(place: Path, subjects: list[str]) -> None:
    for file in sorted(messages_of(place).rglob("*.parquet")):
        rows = pq.read_table(file, partitioning=None)
        kept = rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=pa.array(subjects))))
        pq.write_table(kept, file.with_suffix(".new"), compression="zstd")
        os.sync()
        file.with_suffix(".new").replace(file)


def _delete(location: Path, subjects: list[str]) -> None:
    DeltaTable(str(location)).delete(f"{KEY} IN ({', '.join(map(repr, subjects))})")


def _delete_messages(place: Path, subjects: list[str]) -> None:
    _delete(messages_of(place), subjects)


def _delete_rows(place: Path, subjects: list[str]) -> None:
    _delete(place / TABLE, subjects)


MAKERS: dict[str, Callable[[Path, Size], None]] = {
    "Parquet": lambda place, size: _make_stream(place, size, "parquet"),
    "Delta": lambda place, size: _make_stream(place, size, "delta"),
    "in place": _make_table,
}
WAYS: dict[str, tuple[str, Callable[[Path, list[str]], None]]] = {
    "pyarrow": ("Parquet", _rewrite_files),
    "erase, Parquet": ("Parquet", _erase_messages),
    "DELETE": ("Delta", _delete_messages),
    "erase, Delta": ("Delta", _erase_messages),
    "DELETE in place": ("in place", _delete_rows),
    "erase in place": ("in place", _erase_rows),
}
"""Way → the table that it changes, and the work."""


if __name__ == "__main__":
    main()
