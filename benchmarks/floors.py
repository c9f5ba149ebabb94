"""`python -m benchmarks.floors`: the work of a pass done bare, without plan, checks or table, beside the pass."""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.comparing import choices, say
from benchmarks.contenders import load
from benchmarks.contenders.contender import Contender
from benchmarks.data import make_table, messages_of
from benchmarks.meter import measure
from benchmarks.tasks import TTL_NAMES, Size, Task, task
from benchmarks.ttl import make_ttl_table, ttl_task
from retention.datafile.copied_payloads import PAYLOAD
from retention.datafile.parquet import parquet_writer
from retention.schemas.messages import RULE_COLUMNS
from retention.storage.row_groups.footer import OfGroup, read_footer
from retention.storage.row_groups.pages import plain_pages
from retention.storage.row_groups.stored_group import load_pages

PEERS = {
    "drop": "deltalake-partition",
    "ttl-grouped": "deltalake",
    "ttl": "deltalake",
    "cut": "pyiceberg",
    "last-many": "duckdb",
}
"""Piece of work → the contender beside it."""


def compare(name: str, size: Size, directory: Path, peer: str, runs: int) -> list[str]:
    """Lines of a Markdown table: this engine, its floor, and a peer on one piece of work, in turns."""
    asked = ttl_task(name, size) if name in TTL_NAMES else task(name, size, 0)
    source = directory / name
    if name in TTL_NAMES:
        make_ttl_table(source, size, asked)
    else:
        make_table(source, size, size.many_subjects if asked.table == "many" else size.subjects)
    costs: dict[str, list[float]] = {"ours": [], peer: [], "floor": [], "pages": []}
    with _opened("ours") as ours, _opened(peer) as other:
        for number in range(runs + 1):
            place = directory / f"{name}-{number}"
            spent = {
                "ours": _run(ours, source, place / "ours", asked),
                peer: _run(other, source, place / peer, asked),
                "floor": _spent(floor_of(place / "ours", source, place / "floor", asked)),
                "pages": _spent(pages_of(place / "ours", place / "pages")),
            }
            for each in costs if number else ():
                costs[each].append(spent[each])
    medians = {each: statistics.median(spent) for each, spent in costs.items()}
    return [
        f"| `{name}` | {each} | {median * 1_000:.1f} | {median / medians['floor']:.2f} |"
        for each, median in medians.items()
    ]


@contextmanager
def _opened(name: str) -> Iterator[Contender]:
    contender = load(name)
    contender.open()
    try:
        yield contender
    finally:
        contender.close()


def floor_of(done: Path, source: Path, place: Path, asked: Task) -> Callable[[], None]:
    """What a pass has to do at least: decode and encode the rows that stay in its new data files, and write its files.

    For the last message of each subject, also find its sequence.

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
    stays = pa.concat_arrays([pa.array([], pa.int64()), *map(_seqs, data)])
    replaced = sorted({each for path in data for each in _replaced(path, source, done)})
    place.mkdir(parents=True)

    def work() -> None:
        if asked.kind == "last":
            _last_of_each(sorted(messages_of(source).rglob("segment=*/*.parquet")))
        for number, file in enumerate(replaced):
            _rewrite(file, place / f"data-{number}", stays)
        for number, content in enumerate(others):
            _write(place / f"other-{number}", partial(_Digesting.write, content=content))

    return work


def pages_of(done: Path, place: Path) -> Callable[[], None]:
    """Only the payloads of the data files of a pass: each page is decompressed, compressed, digested and written.

    A writer that changes every page does at least this, whatever it does with the values.

    Args:
        done: a warehouse after a pass of this engine.
        place: a directory for the files, each synced as in `floor_of`.
    """
    data = sorted(messages_of(done).rglob("segment=*/*.parquet"))
    place.mkdir(parents=True)

    def work() -> None:
        for number, file in enumerate(data):
            _write(place / f"{number}", partial(_recompress, file))

    return work


def _recompress(file: Path, sink: _Digesting) -> None:
    codec = pa.Codec("zstd")
    with pa.OSFile(str(file)) as source:
        footer = read_footer(source)
        for number, group in enumerate(footer.groups):
            chunk = load_pages(source, footer, number, PAYLOAD)
            for page in plain_pages(memoryview(chunk), group[OfGroup.ROWS].value):
                stored = chunk.slice(page.begin, page.end - page.begin)
                sink.write(codec.compress(codec.decompress(stored, page.decoded_bytes)))


def _replaced(copy: Path, source: Path, done: Path) -> list[Path]:
    """The files of a segment before the pass that have a message of a new file."""
    first = _seqs(copy)[0]
    files = (source / copy.parent.relative_to(done)).glob("*.parquet")
    return [file for file in files if pc.any(pc.equal(_seqs(file), first)).as_py()]


def _seqs(file: Path) -> pa.Array:
    return pq.read_table(file, columns=["seq"], partitioning=None)["seq"].combine_chunks()


def _last_of_each(files: list[Path]) -> None:
    """The highest sequence of each subject in some files."""
    columns = ["subject", "seq"]
    pq.read_table(files, columns=columns, partitioning=None, use_threads=False).group_by(
        "subject", use_threads=False
    ).aggregate([("seq", "max")])


def _rewrite(file: Path, target: Path, stays: pa.Array) -> None:
    rows = pq.read_table(file, partitioning=None, use_threads=False)
    kept = rows.filter(pc.is_in(rows["seq"], value_set=stays))

    def encode(sink: _Digesting) -> None:
        with parquet_writer(sink, kept) as writer:
            writer.write_table(kept)

    _write(target, encode)
    pq.read_table(target, columns=list(RULE_COLUMNS), partitioning=None, use_threads=False)


class _Digesting:
    """A file that is written, with its SHA-256."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._digest = hashlib.sha256()
        self.closed = False

    def write(self, content: bytes | pa.Buffer) -> int:
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


def _run(contender: Contender, source: Path, place: Path, asked: Task) -> float:
    contender.place(source, place, asked)
    spent = _spent(lambda: contender.run(place, asked))
    if not contender.files(place):
        raise RuntimeError(f"{place}: no data files remain")
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
    parser.add_argument("--only", type=choices(tuple(PEERS)), default=tuple(PEERS))
    options = parser.parse_args()
    size = Size(options.messages, options.segments, 2_000, options.messages * options.segments // 3)
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    print("| task | by | processor ms | times the floor |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="floors-") as directory:
        for name in options.only:
            say(name)
            lines = compare(name, size, Path(directory), PEERS[name], options.runs)
            print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
