"""`python -m benchmarks.buckets`: single puts and gets among many keys, beside a table of keys kept by hand."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from retention import open_warehouse

VALUE_BYTES = 100
_SEED = 20_261_123
_PERCENTILES = (50, 90, 99)


class Keys(Protocol):
    """A table of keys: filled at once, then updated one by one."""

    def fill(self, values: pa.Table) -> None:
        """Put all keys: columns `key` and `value`."""

    def put(self, key: str, value: bytes) -> None:
        """Set the value of one key."""

    def get(self, key: str) -> bytes:
        """The value of one key."""

    def keys(self) -> int:
        """List all keys; returns their number."""


class Ours:
    """A bucket."""

    def __init__(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        (place / "retention.yaml").write_text("buckets: [{name: BENCH}]\n")
        self._bucket = open_warehouse(place).kv("BENCH")

    def fill(self, values: pa.Table) -> None:
        """Put all keys in one commit."""
        self._bucket.put_all(
            zip(values["key"].to_pylist(), values["value"].to_pylist(), strict=True)
        )

    def put(self, key: str, value: bytes) -> None:
        """One commit."""
        self._bucket.put(key, value)

    def get(self, key: str) -> bytes:
        """By digests."""
        return self._bucket.get(key).value

    def keys(self) -> int:
        """By digests and headers."""
        return len(self._bucket.keys())


class ByHand:
    """A Delta table with a row per key, written by MERGE and read by a filter, as in deltalake's documentation."""

    def __init__(self, place: Path) -> None:
        self._place = str(place)

    def fill(self, values: pa.Table) -> None:
        """Write the table, sorted by key, so that row groups can be skipped."""
        write_deltalake(self._place, values.sort_by("key"))

    def put(self, key: str, value: bytes) -> None:
        """One MERGE, which rewrites the file with the key."""
        row = pa.table({"key": [key], "value": pa.array([value], pa.binary())})
        merge = DeltaTable(self._place).merge(row, "t.key = s.key", "s", "t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def get(self, key: str) -> bytes:
        """One query."""
        text = f"select value from t where key = '{key}'"  # noqa: S608
        value: bytes = self._query(text)["value"][0].as_py()
        return value

    def keys(self) -> int:
        """Read the column."""
        return self._query("select key from t").num_rows

    def _query(self, text: str) -> pa.Table:
        table = DeltaTable(self._place)
        return pa.table(QueryBuilder().register("t", table).execute(text).read_all())


CONTENDERS: dict[str, Callable[[Path], Keys]] = {"ours": Ours, "deltalake": ByHand}


@dataclass(frozen=True)
class Work:
    """The size of the work."""

    keys: int
    puts: int
    gets: int


def values_of(count: int) -> pa.Table:
    """Keys of three tokens, in random order, and incompressible values."""
    random = np.random.default_rng(_SEED)
    names = [f"eu.user-{number:07}.state" for number in random.permutation(count).tolist()]
    raw = random.bytes(VALUE_BYTES * count)
    values = [raw[at : at + VALUE_BYTES] for at in range(0, len(raw), VALUE_BYTES)]
    return pa.table({"key": names, "value": pa.array(values, pa.binary())})


def run(name: str, place: Path, work: Work) -> Iterator[str]:
    """Measure one contender; rows of a Markdown table."""
    random = np.random.default_rng(_SEED + 1)
    drawn = [
        f"eu.user-{number:07}.state" for number in random.integers(0, work.keys, work.gets).tolist()
    ]
    held = CONTENDERS[name](place)
    values = values_of(work.keys)
    yield row(name, f"put {work.keys:,} keys at once", [seconds(lambda: held.fill(values))])
    cold = CONTENDERS[name](place)
    yield row(name, "get, the first of a process", [seconds(lambda: cold.get(drawn[0]))])
    yield row(name, "get", [seconds(partial(cold.get, key)) for key in drawn])
    puts = drawn[: work.puts]
    yield row(name, "put", [seconds(partial(cold.put, key, b"new")) for key in puts])
    changed = [seconds(partial(cold.get, key)) for key in drawn]
    yield row(name, f"get, behind {len(puts)} puts", changed)
    if cold.get(puts[0]) != b"new" or held.keys() != work.keys:
        raise SystemExit(f"{name}: does not hold what was put")
    yield row(name, "keys", [seconds(cold.keys)])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    yield f"| {name} | peak of memory, MiB | {peak:,} | | | |"


def seconds(act: Callable[[], object]) -> float:
    """The seconds of an act."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def row(name: str, what: str, times: list[float]) -> str:
    """A row of a Markdown table: milliseconds at some percentiles, and operations per second."""
    cells = [f"{value * 1e3:,.1f}" for value in np.percentile(times, _PERCENTILES)]
    return f"| {name} | {what} | {' | '.join(cells)} | {1 / float(np.mean(times)):,.1f} |"


def main() -> int:
    """Measure each contender in a process of its own, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.buckets", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--puts", type=int, default=200)
    parser.add_argument("--gets", type=int, default=500)
    parser.add_argument("--directory", type=Path, help="where tables lie")
    parser.add_argument("--only", choices=CONTENDERS, help="one contender, in this process")
    options = parser.parse_args()
    work = Work(options.keys, options.puts, options.gets)
    if options.only:
        with tempfile.TemporaryDirectory(dir=options.directory) as place:
            for line in run(options.only, Path(place), work):
                print(line, flush=True)
        return 0
    print("| | | p50 ms | p90 ms | p99 ms | a second |\n" + "|---" * 6 + "|", flush=True)
    for name in CONTENDERS:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.buckets", *sys.argv[1:], "--only", name], check=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
