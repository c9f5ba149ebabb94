"""`python -m benchmarks.consumers`: acks are folded and what they settle is let go, by a real nats-server and by us."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

import retention
from benchmarks.acks import (
    CONSUMERS,
    NEAR,
    SEGMENTS,
    WAITING_EVERY,
    configure,
    make_source,
    messages_of,
    replies,
    write_archive,
    write_log,
)
from benchmarks.data import copy_warehouse
from benchmarks.meter import Watch, forget_peak, measure_other, peak_mebibytes, server_process
from benchmarks.tasks import STREAM
from retention.formats.nats.backup import read_backup
from tests.support.nats_oracle import Nats, server

SERVER = "nats-server"
EVERY_S, WITHIN_S = 0.02, 600.0
PREFIX = 0.9
Run = TypeVar("Run")
_WORK = """
import json, sys
from dataclasses import asdict
from benchmarks.meter import measure
from retention.startup import spare_pandas
spare_pandas()
from retention import open_warehouse
place, log, engine = sys.argv[1:]
warehouse = open_warehouse(place, engine=engine)
stream = warehouse.stream("BENCH")
def apply():
    [outcome] = warehouse.apply()
    if outcome.error is not None:
        raise outcome.error
    done["removed"] = outcome.value.removed_messages
done = {}
done["fold"] = asdict(measure(lambda: stream.consumers.fold(log)))
done["release"] = asdict(measure(apply))
print(json.dumps(done))
"""


def by_server(nats: Nats, archive: Path, state: dict[str, Any], left: int) -> dict[str, Any]:
    """Restore the archive, send all acks at once, and wait until `left` messages remain.

    Returns:
        the cost `server` from the first ack on, its peak memory since then in MiB, and the remaining sequences.
    """
    config = {"name": STREAM, "subjects": ["orders.>"], "retention": "interest", "storage": "file"}
    nats.restore_archive(config, state, archive)
    of_each = [replies(state["messages"], consumer) for consumer in CONSUMERS]
    begins = range(0, state["messages"], NEAR)
    turns = pa.concat_arrays([each.slice(begin, NEAR) for begin in begins for each in of_each])
    lines = pc.binary_join_element_wise("PUB ", turns, " 4\r\n+ACK\r\n", "").to_pylist()
    content = "".join(lines).encode()
    process = server_process()
    forget_peak(process)

    def settle() -> None:
        _send(nats, content)
        started = time.perf_counter()
        while (held := nats.info(STREAM, WITHIN_S)["state"]["messages"]) > left:
            if time.perf_counter() - started > WITHIN_S:
                raise TimeoutError(f"nats-server still holds {held} messages, not {left}")
            time.sleep(EVERY_S)

    cost = measure_other(process, settle)
    peak = peak_mebibytes(process)
    after = archive.with_suffix(".after")
    nats.snapshot(STREAM, after)
    nats.delete(STREAM)
    rows = pa.concat_tables(read_backup(after).batches())
    return {"server": asdict(cost), "peak": peak, "left": rows["seq"].to_pylist()}


def _send(nats: Nats, content: bytes) -> None:
    """Publish like a client with all content known in advance; returns after the server has read it."""
    address = urlsplit(nats.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(
            b'CONNECT {"verbose":false,"pedantic":false}\r\n' + content + b"PING\r\n"
        )
        heard = b""
        while b"PONG\r\n" not in heard:
            heard = heard[-64:] + connection.recv(65_536)


def by_us(source: Path, place: Path, log: Path, engine: str) -> dict[str, Any]:
    """Fold the log and make a pass over a fresh copy, in a new process; imports are not timed.

    Returns:
        the costs `fold` and `release`, `removed`, peak memory in MiB, and the remaining sequences.
    """
    copy_warehouse(source, place)
    os.sync()
    command = [sys.executable, "-c", _WORK, str(place), str(log), engine]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        Watch(Path("/proc", str(process.pid))) as watch,
    ):
        told = process.communicate()[0]
    if process.returncode:
        raise RuntimeError(f"the fold with engine {engine} ended with {process.returncode}")
    left = messages_of(place)["seq"].to_pylist()
    shutil.rmtree(place)
    return json.loads(told) | {"peak": sum(watch.peaks().values()), "left": left}


def by_prefix(source: Path, directory: Path, runs: int) -> list[float]:
    """Seconds of passes that release messages below every floor, nine tenths of the stream, in a warm process.

    Raises:
        AssertionError: other messages remain.
    """
    configure(source, "all")
    last = retention.open_warehouse(source).stream(STREAM).state().last_seq
    per_file = last // SEGMENTS
    floor = int(SEGMENTS * PREFIX) * per_file
    log = directory / "prefix.jsonl"
    subjects = [
        f"$JS.ACK.{STREAM}.{name}.1.{floor}.{floor}.1700000000000000000.0" for name in CONSUMERS
    ]
    log.write_text("".join(json.dumps({"subject": one, "data": "+ACK"}) + "\n" for one in subjects))
    seconds = []
    for number in range(runs + 1):
        place = directory / f"prefix-{number}"
        copy_warehouse(source, place)
        warehouse = retention.open_warehouse(place, engine="local")
        warehouse.stream(STREAM).consumers.fold(str(log))
        os.sync()
        started = time.perf_counter()
        [outcome] = warehouse.apply()
        seconds.append(time.perf_counter() - started)
        if outcome.error is not None:
            raise outcome.error
        if warehouse.stream(STREAM).state().first_seq != floor + 1:
            raise AssertionError(f"not everything up to {floor} went, or more")
        shutil.rmtree(place)
    return sorted(counted(seconds))


def counted(runs: list[Run]) -> list[Run]:
    """All runs except the first, if there are others."""
    return runs[1:] or runs


def measure(directory: Path, asked: argparse.Namespace) -> Iterator[str]:
    """Every way in turns, after one uncounted turn, as lines of a Markdown table.

    Raises:
        AssertionError: server and engine keep different messages.
    """
    source, log, archive = (directory / name for name in ("source", "acks.parquet", "archive"))
    make_source(source, asked.messages)
    acks = write_log(log, asked.messages)
    expected = list(range(WAITING_EVERY, asked.messages + 1, WAITING_EVERY))
    ways = [*([SERVER] if asked.server else []), *asked.engines]
    state = write_archive(archive, messages_of(source)) if asked.server else {}
    done: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for number in range(asked.runs + 1):
        for way in ways:
            if way == SERVER:
                with server() as nats:
                    one = by_server(nats, archive, state, len(expected))
            else:
                one = by_us(source, directory / f"{way}-{number}", log, way)
            if one["left"] != expected:
                raise AssertionError(
                    f"{way} leaves {len(one['left'])} messages, not {len(expected)}"
                )
            done[way].append(one)
    yield from _table({way: counted(runs) for way, runs in done.items()}, acks)
    seconds = by_prefix(source, directory, asked.runs)
    told = f"{statistics.median(seconds) * 1000:.0f} ms ({seconds[0] * 1000:.0f} to {seconds[-1] * 1000:.0f})"
    yield f"\n{PREFIX:.0%} of {asked.messages:,} messages below every floor: a pass takes {told}"


def _table(done: dict[str, list[dict[str, Any]]], acks: int) -> Iterator[str]:
    yield (
        "| who | seconds (median, fastest to slowest) | acks a second | times the server's rate "
        "| processor seconds | MB read | MB written | peak MiB |"
    )
    yield "|---" * 8 + "|"
    served = 0.0
    for way, runs in done.items():
        peak = max(one["peak"] for one in runs)
        if way == SERVER:
            parts = {way: ["server"]}
            served = statistics.median(one["server"]["seconds"] for one in runs)
        else:
            parts = {
                f"ours, {way}": ["fold", "release"],
                "of it, fold": ["fold"],
                "of it, release": ["release"],
            }
        for what, costs in parts.items():
            of_each = [[one[cost] for cost in costs] for one in runs]
            yield _line(what, of_each, acks, served, peak)


def _line(
    what: str, runs: Sequence[list[dict[str, Any]]], acks: int, served: float, peak: float
) -> str:
    def of_all(name: str) -> list[float]:
        return [sum(cost[name] or 0 for cost in costs) for costs in runs]

    seconds = of_all("seconds")
    middle = statistics.median(seconds)
    span = f"{middle:.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
    ratio = f"{served / middle:.1f}" if served else ""
    read, written = (statistics.median(of_all(f"bytes_{way}")) / 1e6 for way in ("read", "written"))
    cpu = statistics.median(of_all("cpu_seconds"))
    numbers = f"{cpu:.2f} | {read:,.1f} | {written:,.1f} | {peak:,.0f}"
    return f"| {what} | {span} | {acks / middle:,.0f} | {ratio} | {numbers} |"


def main() -> None:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consumers", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="three acks of each")
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each way")
    parser.add_argument("--engines", nargs="*", default=["local"])
    parser.add_argument("--no-server", dest="server", action="store_false", help="ours alone")
    asked = parser.parse_args()
    asked.messages -= asked.messages % SEGMENTS
    with tempfile.TemporaryDirectory(prefix="consumers-") as directory:
        for line in measure(Path(directory), asked):
            print(line, flush=True)


if __name__ == "__main__":
    main()
