"""`python -m benchmarks.broker`: limits lowered to a quarter, by a real nats-server and by a pass over the same."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import retention
from benchmarks.data import copy_warehouse, payloads, write_config
from benchmarks.tasks import FIRST_TS_NS, STREAM
from retention.core.message_rows import Storage
from retention.formats.nats.backup import RAW_ROWS, read_backup, write_backup
from tests.support.nats_oracle import Nats, server, state_of

SUBJECTS = 2_000
STEP_NS = 10**9
STORAGES: tuple[Storage, ...] = ("file", "memory")
LIMITS = {"MaxBytes": ("max_bytes", "bytes"), "MaxMsgs": ("max_msgs", "messages")}
"""Each limit, with its name in a configuration and the limited field of a stream's state."""
HOW = ("nats-server, STREAM.UPDATE", "ours, warm process", "ours, new process (`jobs.retain`)")


@dataclass(frozen=True)
class Source:
    """The same messages twice: in an archive for a server, and in a warehouse."""

    storage: Storage
    archive: Path
    state: dict[str, Any]
    warehouse: Path

    def quarter(self, limit: str) -> int:
        """The limit's new value."""
        return self.state[LIMITS[limit][1]] // 4


@dataclass(frozen=True)
class Case:
    """One limit on one kind of storage: the time of each way to enforce it, and the number of kept messages."""

    limit: str
    storage: Storage
    seconds: dict[str, list[float]]
    left: int


def make_rows(messages: int) -> pa.Table:
    """Messages of 100 to 140 bytes, one per second, on 2,000 subjects; shape `RAW_ROWS`."""
    random = np.random.default_rng(20_250_101)
    numbers = np.arange(messages)
    names = pa.array([f"orders.{number}" for number in range(SUBJECTS)])
    columns = {
        "seq": numbers + 1,
        "subject": names.take(pa.array(random.integers(0, SUBJECTS, messages))),
        "ts_ns": FIRST_TS_NS + numbers * STEP_NS,
        "headers": pa.nulls(messages, pa.binary()),
        "payload": payloads(random, np.full(messages, 100)),
    }
    return pa.table(columns, schema=RAW_ROWS)


def measure(nats: Nats, directory: Path, rows: pa.Table, runs: int) -> Iterator[Case]:
    """Every limit on every storage, the ways to enforce it in turns, after one uncounted turn.

    Raises:
        AssertionError: server and engine keep different messages.
    """
    for storage in STORAGES:
        source = _source(directory, rows, storage)
        for limit in LIMITS:
            seconds: dict[str, list[float]] = {how: [] for how in HOW}
            left = 0
            for number in range(runs + 1):
                place = directory / f"{storage}-{limit}-{number}"
                took, left = _turn(nats, source, limit, place)
                for how, one in zip(HOW, took if number else (), strict=False):
                    seconds[how].append(one)
            yield Case(limit, storage, seconds, left)


def _turn(nats: Nats, source: Source, limit: str, place: Path) -> tuple[list[float], int]:
    """Each way once, ours on a fresh copy of the warehouse: seconds, and the number of kept messages."""
    seconds, survivors = _server(nats, source, limit, place)
    took = [seconds]
    for way in (_warm, _cold):
        warehouse = place.with_name(f"{place.name}{way.__name__}")
        copy_warehouse(source.warehouse, warehouse)
        _configure(warehouse, source.storage, f", {LIMITS[limit][0]}: {source.quarter(limit)}")
        os.sync()
        started = time.perf_counter()
        way(warehouse)
        took.append(time.perf_counter() - started)
        if not _messages(warehouse).equals(survivors):
            raise AssertionError(f"{limit}, {source.storage}: server and engine differ")
    return took, survivors.num_rows


def _server(nats: Nats, source: Source, limit: str, place: Path) -> tuple[float, pa.Table]:
    """Seconds from the request until the server reaches the state, and the survivors."""
    name, counter = LIMITS[limit]
    value = source.quarter(limit)
    unlimited = {"name": STREAM, "subjects": ["orders.>"], "storage": source.storage}
    config = nats.restore_archive(unlimited, source.state, source.archive)["config"]
    started = time.perf_counter()
    state = nats.update(config | {name: value})["state"]
    while state[counter] > value:
        state = nats.info(STREAM)["state"]
    seconds = time.perf_counter() - started
    nats.snapshot(STREAM, place)
    nats.delete(STREAM)
    return seconds, pa.concat_tables(read_backup(place).batches()).combine_chunks()


def _warm(warehouse: Path) -> None:
    (outcome,) = retention.open_warehouse(warehouse, engine="local").apply([STREAM])
    if outcome.error is not None:
        raise outcome.error


def _cold(warehouse: Path) -> None:
    command = [sys.executable, "-m", "retention.jobs.retain", "--warehouse", str(warehouse)]
    subprocess.run([*command, "--engine", "local"], check=True, stdout=subprocess.DEVNULL)


def _messages(warehouse: Path) -> pa.Table:
    found = list(retention.open_warehouse(warehouse).stream(STREAM).messages())
    return pa.concat_tables(found).select(RAW_ROWS.names).combine_chunks().cast(RAW_ROWS)


def _source(directory: Path, rows: pa.Table, storage: Storage) -> Source:
    state = state_of(rows, None, storage)
    archive, warehouse = directory / f"{STREAM}.{storage}", directory / f"source-{storage}"
    write_backup(archive, state, {}, [rows])
    warehouse.mkdir()
    _configure(warehouse, storage, "")
    retention.open_warehouse(warehouse).stream(STREAM).import_nats_backup(archive)
    return Source(storage, archive, state | {"consumer_count": 0}, warehouse)


def _configure(warehouse: Path, storage: Storage, limit: str) -> None:
    write_config(warehouse, f"storage: {storage}{limit}")


def main() -> None:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each way")
    asked = parser.parse_args()
    print("| limit | storage | messages left | " + " | ".join(HOW) + " |")
    print("|---|---|---" + "|---" * len(HOW) + "|")
    with tempfile.TemporaryDirectory(prefix="broker-") as directory, server() as nats:
        for case in measure(nats, Path(directory), make_rows(asked.messages), asked.runs):
            told = (
                f"{statistics.median(all_):.3f} s ({min(all_):.3f} to {max(all_):.3f})"
                for all_ in case.seconds.values()
            )
            print(
                f"| {case.limit} | {case.storage} | {case.left:,} | {' | '.join(told)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
