"""`python -m benchmarks.sync`: a stream of a real server copied, beside readers of the same that keep nothing."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import nats
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from nats.js.api import AckPolicy, ConsumerConfig

import retention
from benchmarks.comparing import say
from benchmarks.data import payloads
from benchmarks.tasks import FIRST_TS_NS
from retention.api.stream import Stream
from retention.formats.nats.backup import RAW_ROWS
from retention.storage.digesting import DigestingSink
from tests.support.nats_oracle import Nats, server

SIZES = {100: 200_000, 10_240: 20_000}
"""Bytes of a payload → messages."""
SUBJECTS = 50
ASKED_BYTES = 8 << 20
"""Bytes of payloads that a reader asks for at once; the raw reader has two requests in flight."""
_RECEIVED = 1 << 18
FILE_BYTES = 64 << 20
"""The bytes of a file of the bare writer, as of a batch of a sync."""
_MOST_PARTS = 8
"""The most parts, of `ASKED_BYTES` each, that the bare writer's reader is ahead."""


SLOWER = 10
"""The client library reads this part of the messages."""
WARMING = "WARM"
"""A stream that each new process reads first, uncounted."""
_WARMING_MESSAGES = 1_000


@dataclass(frozen=True)
class Work:
    """A stream of a server to be read."""

    url: str
    stream: str
    size: int
    """Bytes of a payload."""
    messages: int
    place: Path
    """A new directory for a copy, beside the stream's backup."""

    @property
    def at_once(self) -> int:
        """The messages of a request."""
        return min(5_000, ASKED_BYTES // self.size)

    @property
    def backup(self) -> Path:
        """A backup of the stream, made before."""
        return self.place.parent / f"{self.stream}.backup"


def raw(work: Work) -> None:
    """Read by a socket, find each frame's end, and keep nothing."""
    address = urlsplit(work.url)
    with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
        reader = _RawReader(connection, work)
        reader.create_consumer()
        reader.read()


class _RawReader:
    """A pull consumer on a socket."""

    def __init__(
        self,
        connection: socket.socket,
        work: Work,
        keep: Callable[[pa.Table], None] | None = None,
    ) -> None:
        self._connection, self._work, self._keep = connection, work, keep
        self._name = f"raw{os.getpid()}"
        self._buffer = bytearray()
        connection.sendall(
            b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
            + f"SUB _INBOX.{self._name} 1\r\n".encode()
        )

    def create_consumer(self) -> None:
        config = {
            "ack_policy": "none",
            "deliver_policy": "all",
            "mem_storage": True,
            "name": self._name,
        }
        body = {
            "stream_name": self._work.stream,
            "config": config | {"inactive_threshold": 30 * 10**9},
        }
        self._publish(f"$JS.API.CONSUMER.CREATE.{self._work.stream}.{self._name}", body)
        self._frames(1)

    def read(self) -> None:
        messages, at_once = self._work.messages, self._work.at_once
        seen = asked = 0
        while seen < messages:
            while asked - seen <= at_once:
                self._ask()
                asked += at_once
            seen += self._frames(min(at_once, messages - seen), self._keep)

    def _ask(self) -> None:
        body = {"batch": self._work.at_once, "expires": 30 * 10**9}
        self._publish(f"$JS.API.CONSUMER.MSG.NEXT.{self._work.stream}.{self._name}", body)

    def _publish(self, subject: str, body: Mapping[str, object]) -> None:
        payload = json.dumps(body).encode()
        line = f"PUB {subject} _INBOX.{self._name} {len(payload)}\r\n".encode()
        self._connection.sendall(line + payload + b"\r\n")

    def _frames(self, count: int, keep: Callable[[pa.Table], None] | None = None) -> int:
        """Pass over this many deliveries and answers; control messages of a request are none."""
        at = found = 0
        kept, offsets = bytearray(), [0]
        while found < count:
            end = self._buffer.find(b"\r\n", at)
            if end < 0 or not (after := self._end_of(at, end)):
                if keep is not None:
                    kept += memoryview(self._buffer)[:at]
                del self._buffer[:at]
                at = 0
                received = self._connection.recv(_RECEIVED)
                if not received:
                    raise ConnectionError("the server closed the connection")
                self._buffer += received
                continue
            if self._buffer.startswith(b"MSG ", at):
                found += 1
                offsets.append(len(kept) + after)
            at = after
        if keep is not None:
            kept += memoryview(self._buffer)[:at]
            keep(_frame_table(kept, offsets))
        del self._buffer[:at]
        return found

    def _end_of(self, at: int, end: int) -> int:
        """The end of a frame whose first line ends at `end`; 0: it has not come whole."""
        if not self._buffer.startswith((b"MSG ", b"HMSG "), at):
            return end + 2
        after = end + int(self._buffer[self._buffer.rfind(b" ", at, end) + 1 : end]) + 4
        return after if after <= len(self._buffer) else 0


def _frame_table(frames: bytearray, offsets: Sequence[int]) -> pa.Table:
    """The frames between some offsets of a buffer, not copied, and their lengths."""
    bounds = np.array(offsets, np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(frames)]
    column = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return pa.table({"frame": column, "length": pa.array(np.diff(bounds))})


def bare_writer(work: Work) -> None:
    """Read as the raw reader does, and write the frames beside that: the least that a copy has to do.

    A column of frames and one of their lengths go to a Parquet file for each 64 MiB, compressed, with page checksums
    and a SHA-256; it is fsynced, and the lengths are read back. Nothing is decoded, and nothing committed.
    """
    parts: queue.Queue[pa.Table | None] = queue.Queue(_MOST_PARTS)
    work.place.mkdir()
    address = urlsplit(work.url)
    with (
        ThreadPoolExecutor(1) as thread,
        socket.create_connection((address.hostname or "", address.port or 0)) as connection,
    ):
        written = thread.submit(_write_files, work.place, parts)
        reader = _RawReader(connection, work, parts.put)
        reader.create_consumer()
        reader.read()
        parts.put(None)
        if written.result() != work.messages:
            raise AssertionError("frames are missing")


def _write_files(place: Path, parts: queue.Queue[pa.Table | None]) -> int:
    """Write parts to files, and read their lengths back; returns the number of frames."""
    frames = 0
    while (part := parts.get()) is not None:
        path, left = place / f"{frames}.parquet", FILE_BYTES
        with path.open("wb") as file:
            sink = DigestingSink(file, hashlib.sha256())
            with pq.ParquetWriter(
                sink,
                part.schema,
                compression="zstd",
                use_dictionary=False,
                write_page_checksum=True,
                write_statistics=["length"],
            ) as writer:
                while part is not None:
                    writer.write_table(part)
                    frames, left = frames + part.num_rows, left - part.nbytes
                    if left < part.nbytes:
                        break
                    part = parts.get()
            file.flush()
            os.fsync(file.fileno())
        pq.read_table(path, columns=["length"])
        if part is None:
            break
    return frames


def nats_py(work: Work) -> None:
    """Read by the client library's `fetch`, and keep nothing."""
    asyncio.run(_fetched(work))


async def _fetched(work: Work) -> None:
    client = await nats.connect(work.url)
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True)
    subscription = await client.jetstream().pull_subscribe("", stream=work.stream, config=config)
    seen = 0
    while seen < work.messages:
        wanted = min(work.at_once, work.messages - seen)
        seen += len(await subscription.fetch(wanted, timeout=30))
    await client.close()


def import_backup(work: Work) -> None:
    """Import a backup that was made before."""
    _new_stream(work, {}).import_nats_backup(work.backup)


def sync(work: Work) -> None:
    """Copy the stream into a new one."""
    done = _new_stream(work, {"sync": {"server": work.url}}).sync()
    if done.messages != work.messages:
        raise AssertionError(f"{done.messages:,} of {work.messages:,} messages were copied")


def _new_stream(work: Work, config: Mapping[str, object]) -> Stream:
    work.place.mkdir()
    document = {"streams": [{"name": work.stream, **config}]}
    (work.place / "retention.yaml").write_text(json.dumps(document))
    return retention.open_warehouse(work.place, engine="local").stream(work.stream)


WAYS: dict[str, Callable[[Work], None]] = {
    "a raw reader": raw,
    "a bare overlapped writer": bare_writer,
    "nats-py, `fetch`": nats_py,
    "`import nats-backup`": import_backup,
    "`sync nats`": sync,
}


def make_rows(stream: str, size: int, messages: int) -> pa.Table:
    """Messages with payloads of one size on 50 subjects; shape `RAW_ROWS`."""
    numbers = np.arange(messages)
    columns = {
        "seq": numbers + 1,
        "subject": [f"{stream}.{number % SUBJECTS}" for number in range(messages)],
        "ts_ns": FIRST_TS_NS + numbers * 10**6,
        "headers": pa.nulls(messages, pa.binary()),
        "payload": payloads(np.random.default_rng(size), np.full(messages, size)),
    }
    return pa.table(columns, schema=RAW_ROWS)


def measure(started: Nats, size: int, messages: int, place: Path, runs: int) -> Iterator[str]:
    """All ways in turns, each in a new process, after one uncounted turn; one row of a table for each."""
    for stream, count in ((WARMING, _WARMING_MESSAGES), ("LIVE", messages)):
        started.restore(stream, {}, make_rows(stream, size, count))
        started.snapshot(stream, place / f"{stream}.backup")
    costs: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(runs + 1):
        say(f"{size:,} bytes: run {number} of {runs}")
        for at, way in enumerate(WAYS):
            count = messages // SLOWER if WAYS[way] is nats_py else messages
            work = Work(started.url, "LIVE", size, count, place / f"{number}-{at}")
            cost = _in_new_process(way, work)
            costs[way] += [cost] if number else []
    base = statistics.median(rate for rate, _ in costs[next(iter(WAYS))])
    for way, measured in costs.items():
        rate, processor = (statistics.median(column) for column in zip(*measured, strict=True))
        rates = f"{rate:,.0f} | {rate * size / 1e6:.0f}"
        yield f"| {size:,} | {way} | {rates} | {processor:.1f} | {rate / base:.2f} |"


def _in_new_process(way: str, work: Work) -> tuple[float, float]:
    """Messages a second, and processor seconds for a million, of a process that is warm."""
    given = [way, work.url, work.stream, str(work.size), str(work.messages), str(work.place)]
    command = [sys.executable, "-m", "benchmarks.sync", "--one", *given]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, processor = map(float, told.split())
    return work.messages / seconds, processor * 1e6 / work.messages


def _one(way: str, work: Work) -> None:
    place = work.place.with_name(f"{work.place.name}-warm")
    WAYS[way](replace(work, stream=WARMING, messages=_WARMING_MESSAGES, place=place))
    before, processor = time.perf_counter(), time.process_time()
    WAYS[way](work)
    print(time.perf_counter() - before, time.process_time() - processor)


def main() -> int:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sync", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of the messages")
    parser.add_argument("--directory", type=Path, help="where copies lie")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        way, url, stream, size, messages, place = options.one
        _one(way, Work(url, stream, int(size), int(messages), Path(place)))
        return 0
    print(
        "| bytes a payload | way | messages a second | MB/s | processor seconds a million | times the raw reader |"
    )
    print("|---|---|---|---|---|---|")
    for size, messages in SIZES.items():
        with tempfile.TemporaryDirectory(prefix="sync-", dir=options.directory) as directory:
            place, count = Path(directory), int(messages * options.share)
            with server() as started:
                for row in measure(started, size, count, place, options.runs):
                    print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
