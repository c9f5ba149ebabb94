"""`python -m benchmarks.appends`: a DataFrame appended by this engine, and written by Spark alone, in one session."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import retention
from benchmarks import report
from benchmarks.comparing import choices, say
from benchmarks.contenders.contender import ROW_GROUP_ROWS, ZSTD_LEVEL
from benchmarks.data import messages_of, payloads, write_config
from benchmarks.meter import measure
from benchmarks.tasks import FIRST_TS_NS, STEP_NS, STREAM
from retention.datafile.parquet import write_messages
from retention.engines.spark.session import session
from retention.schemas.messages import FILE_COLUMNS, RULE_COLUMNS

SUBJECTS = 2_000
SHORTEST, LONGEST = 80, 120
"""Bytes of payloads, drawn evenly."""
KINDS = {
    "in-order": "files and the rows in them are in order of time",
    "mixed": "rows come in no order",
}
ORDER = ("ts_ns", "subject", "payload")
_SEED = 20_250_106


def make_source(directory: Path, messages: int, files: int, *, mixed: bool) -> None:
    """Write a plain table of messages without sequences: `subject`, `payload` and `ts_ns`."""
    directory.mkdir(parents=True)
    random = np.random.default_rng(_SEED)
    names = pa.array([f"orders.{number}" for number in range(SUBJECTS)])
    numbers = random.permutation(messages) if mixed else np.arange(messages)
    for number, some in enumerate(np.array_split(numbers, files)):
        rows = {
            "subject": names.take(pa.array(random.integers(0, SUBJECTS, len(some)))),
            "payload": payloads(random, random.integers(SHORTEST, LONGEST, len(some))),
            "ts_ns": FIRST_TS_NS + some * STEP_NS,
        }
        place = directory / f"{number:04}.parquet"
        pq.write_table(
            pa.table(rows),
            place,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            row_group_size=ROW_GROUP_ROWS,
        )


def ours(frame: DataFrame, place: Path) -> Path:
    """Sequences, segments, checks, statistics, subject counts and the commit."""
    place.mkdir()
    write_config(place, "segment_span: 365d")
    retention.open_warehouse(place).new_stream(STREAM).append(frame, writer="w", batch_id=1)
    return messages_of(place)


def bare(frame: DataFrame, place: Path) -> Path:
    """The floor: tasks write their rows to files of this format, without order, sequences, checks or a commit."""
    place.mkdir()
    directory, columns, narrow = str(place), FILE_COLUMNS, list(RULE_COLUMNS)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = f"{directory}/{uuid.uuid4().hex}.parquet"
        rows = pa.Table.from_batches(batches)
        numbers = pa.array(np.arange(len(rows)))
        given = {"seq": numbers, "size": numbers} | {
            name: rows[name].cast(columns.field(name).type) for name in rows.column_names
        }
        nulls = {each.name: pa.nulls(len(rows), each.type) for each in columns}
        written = [(nulls | given)[name] for name in columns.names]
        write_messages(target, [pa.table(written, schema=columns)])
        pq.read_table(target, columns=narrow, partitioning=None)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([len(rows)], pa.int64())})

    frame.mapInArrow(write, "rows long").toArrow()
    return place


def plain(frame: DataFrame, place: Path) -> Path:
    """The rows in their original order."""
    frame.write.format("delta").mode("append").save(str(place))
    return place


def plain_sorted(frame: DataFrame, place: Path) -> Path:
    """The rows in the order of an append's numbering."""
    return plain(frame.sort(*ORDER), place)


CONTENDERS: dict[str, Callable[[DataFrame, Path], Path]] = {
    "ours": ours,
    "bare": bare,
    "spark": plain,
    "spark-sorted": plain_sorted,
}


def figures_of(table: Path) -> dict[str, int]:
    """Messages of a table, and the sum of their times' positions, to detect lost or duplicate rows."""
    times = pq.read_table(table, columns=["ts_ns"], partitioning=None)["ts_ns"].to_numpy()
    return {"messages": len(times), "places": int(((times - FIRST_TS_NS) // STEP_NS).sum())}


def one_run(
    spark: SparkSession, append: Callable[[DataFrame, Path], Path], source: Path, place: Path
) -> dict[str, Any]:
    """One append to a new table: its cost, and the table's figures."""
    os.sync()
    written: list[Path] = []
    cost = measure(lambda: written.append(append(spark.read.parquet(str(source)), place)))
    try:
        return asdict(cost) | figures_of(written[0])
    finally:
        shutil.rmtree(place)


def compare(
    spark: SparkSession, source: Path, kind: str, options: argparse.Namespace
) -> dict[str, Any]:
    """All contenders on one source, in turns, after one uncounted run each."""
    done: dict[str, list[dict[str, Any]]] = {name: [] for name in options.contenders}
    for number in range(options.runs + 1):
        say(f"{kind}: {'warming up' if not number else f'run {number} of {options.runs}'}")
        for name in options.contenders[:: 1 if number % 2 else -1]:
            outcome = one_run(spark, CONTENDERS[name], source, source.parent / f"{name}-{number}")
            done[name] += [outcome] if number else []
    left = {(run["messages"], run["places"]) for kept in done.values() for run in kept}
    return {
        "task": f"append-{kind}",
        "title": f"append {options.messages:,} messages, of which {KINDS[kind]}",
        "messages": min(left)[0],
        "equal": len(left) == 1,
        "contenders": [report.summary(name, kept) for name, kept in done.items()],
        "failed": {},
    }


def shares_of(result: Mapping[str, Any]) -> str:
    """The engine's processor seconds next to those of the others."""
    used = {entry["contender"]: entry["cpu_seconds"] for entry in result["contenders"]}
    mine = used.pop(report.OURS, None)
    if mine is None:
        return ""
    return "; ".join(f"{mine / other:.2f} of {name}" for name, other in used.items())


def main() -> int:
    """Measure, and print a Markdown table for each source; 1 if the tables differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.appends", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=8, help="of the source")
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each contender")
    parser.add_argument("--only", type=choices(tuple(KINDS)), default=tuple(KINDS))
    parser.add_argument("--contenders", type=choices(tuple(CONTENDERS)), default=tuple(CONTENDERS))
    parser.add_argument("--directory", type=Path, help="where tables lie")
    options = parser.parse_args()
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="appends-", dir=options.directory) as directory,
        session("benchmarks") as spark,
    ):
        spark.conf.set("parquet.compression.codec.zstd.level", str(ZSTD_LEVEL))
        for kind in options.only:
            source = Path(directory, kind, "source")
            make_source(source, options.messages, options.files, mixed=kind == "mixed")
            results.append(compare(spark, source, kind, options))
            print(report.markdown(results[-1:]) + "\n", flush=True)
            print(f"Processor seconds: {shares_of(results[-1])}.\n", flush=True)
    return 0 if all(result["equal"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
