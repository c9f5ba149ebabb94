"""`python -m benchmarks.floors`: the work of a pass done bare, without plan, checks or table, beside the pass."""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.comparing import choices, say
from benchmarks.contenders import load
from benchmarks.contenders.contender import DeltaContender
from benchmarks.data import make_table, messages_of
from benchmarks.meter import measure
from benchmarks.tasks import Size, Task, task
from benchmarks.ttl import make_ttl_table, ttl_task
from retention.datafile.parquet import parquet_writer
from retention.schemas.messages import RULE_COLUMNS

TASKS = ("drop", "ttl-grouped", "ttl")


def compare(name: str, size: Size, directory: Path, peers: Iterable[str], runs: int) -> list[str]:
    """Lines of a Markdown table: this engine, its floor, and peers on one piece of work, in turns."""
    asked = task(name, size, 0) if name == "drop" else ttl_task(name, size)
    source = directory / name
    if name == "drop":
        make_table(source, size, size.subjects)
    else:
        make_ttl_table(source, size, asked)
    contenders = {each: load(each) for each in ("ours", *peers)}
    costs: dict[str, list[float]] = {each: [] for each in (*contenders, "floor")}
    for number in range(runs + 1):
        place = directory / f"{name}-{number}"
        for each, contender in contenders.items():
            spent = _run(contender, source, place / each, asked)
            costs[each] += [spent] if number else []
        spent = _spent(floor_of(place / "ours", source, place / "floor", asked))
        costs["floor"] += [spent] if number else []
    medians = {each: statistics.median(spent) for each, spent in costs.items()}
    return [
        f"| `{name}` | {each} | {median * 1_000:.1f} | {median / medians['floor']:.2f} |"
        for each, median in medians.items()
    ]


def floor_of(done: Path, source: Path, place: Path, asked: Task) -> Callable[[], None]:
    """What a pass has to do at least: decode and encode the rows that stay in its new data files, and write its files.

    Args:
        done: a warehouse after a pass of this engine.
        source: the same before it.
        place: a directory for the files; each is synced, renamed and synced in its directory, as the pass does.
        asked: the piece of work.
    """
    old = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    new = [path for path in done.rglob("*") if path.is_file() and path.relative_to(done) not in old]
    data = [
        path for path in new if path.is_relative_to(messages_of(done)) and path.suffix == ".parquet"
    ]
    others = [path.read_bytes() for path in new if path not in data]
    replaced = sorted({each for path in data for each in _replaced(path, source, done)})
    place.mkdir(parents=True)

    def work() -> None:
        for number, file in enumerate(replaced):
            _rewrite(file, place / f"data-{number}", asked)
        for number, content in enumerate(others):
            _write(place / f"other-{number}", partial(_Digesting.write, content=content))

    return work


def _replaced(copy: Path, source: Path, done: Path) -> list[Path]:
    """The files of a segment before the pass that have a message of a new file."""
    first = pq.read_table(copy, columns=["seq"], partitioning=None)["seq"][0]
    files = (source / copy.parent.relative_to(done)).glob("*.parquet")
    read = {file: pq.read_table(file, columns=["seq"], partitioning=None) for file in files}
    return [file for file, rows in read.items() if pc.any(pc.equal(rows["seq"], first)).as_py()]


def _rewrite(file: Path, target: Path, asked: Task) -> None:
    rows = pq.read_table(file, partitioning=None, use_threads=False)
    kept = rows.filter(pc.greater(rows[asked.column], asked.limit))

    def encode(sink: _Digesting) -> None:
        with parquet_writer(sink) as writer:
            writer.write_table(kept)

    _write(target, encode)
    pq.read_table(target, columns=list(RULE_COLUMNS), partitioning=None, use_threads=False)


class _Digesting:
    """A file that is written, with its SHA-256."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._digest = hashlib.sha256()
        self.closed = False

    def write(self, content: bytes) -> int:
        self._digest.update(content)
        return os.write(self._descriptor, content)

    def flush(self) -> None:
        """Do nothing: nothing is held."""

    def close(self) -> None:
        """Leave the file open."""


def _write(target: Path, encode: Callable[[_Digesting], object]) -> None:
    staged = f"{target}.tmp"
    descriptor = os.open(staged, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    encode(_Digesting(descriptor))
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(staged, target)  # noqa: PTH104
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def _run(contender: object, source: Path, place: Path, asked: Task) -> float:
    if not isinstance(contender, DeltaContender):
        raise TypeError(f"{contender} works on no Delta table")
    contender.place(source, place, asked)
    spent = _spent(lambda: contender.run(place, asked))
    if not messages_of(place).exists():
        raise RuntimeError(f"{place}: the table is gone")
    return spent


def _spent(work: Callable[[], None]) -> float:
    os.sync()
    return measure(work).cpu_seconds


def main() -> int:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floors", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="in each segment")
    parser.add_argument("--segments", type=int, default=12)
    parser.add_argument("--runs", type=int, default=5, help="that are counted")
    parser.add_argument("--only", type=choices(TASKS), default=TASKS)
    options = parser.parse_args()
    size = Size(options.messages, options.segments, 2_000, 2_000)
    print("| task | by | processor ms | times the floor |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="floors-") as directory:
        for name in options.only:
            say(name)
            peer = "deltalake-partition" if name == "drop" else "deltalake"
            print("\n".join(compare(name, size, Path(directory), [peer], options.runs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
