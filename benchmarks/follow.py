"""`python -m benchmarks.follow`: memory, lag and cost of `sync nats --follow` beside a steady publisher."""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nats
import numpy as np
import pyarrow.parquet as pq

from benchmarks.comparing import say
from benchmarks.meter import resident_mebibytes, used_seconds
from tests.support.nats_oracle import Nats, server

NAME = "LIVE"
SUBJECTS = 50
MOST_BYTES = 256 << 20
"""The server keeps this much, and removes the oldest messages beyond it."""
TICK_S = 0.02
DIFFERENT = 1_000
"""Payloads that are published in turns."""
WARM = 0.2
"""The part of a run whose samples do not count for the slope of memory."""
NS = 10**9


@dataclass(frozen=True)
class Load:
    """A steady publisher, and how long it publishes."""

    seconds: float = 60.0
    rate: int = 2_000
    """Messages a second."""
    sizes: tuple[int, int] = (100, 1_000)
    """The least and the most bytes of a payload."""
    every: float = 10.0
    """Seconds between two samples."""


@dataclass(frozen=True)
class Sample:
    """The state of the process that follows, some seconds after the publisher began."""

    seconds: float
    rss_mib: float
    cpu_seconds: float
    """Of the process since its beginning."""
    commits: int
    published: int
    """The server's last sequence."""
    copied: int
    """The copy's last sequence."""

    @property
    def behind(self) -> int:
        """Messages that are published and not committed."""
        return self.published - self.copied


@dataclass(frozen=True)
class Outcome:
    """A run that has ended."""

    samples: Sequence[Sample]
    lags: np.ndarray
    """Seconds from the server's time of each message to the commit that has it."""
    synced: Mapping[str, Any]
    """The entry that the command printed."""

    @property
    def slope(self) -> float:
        """MiB an hour that the resident memory grows after the beginning, by least squares."""
        warm = self.samples[int(len(self.samples) * WARM) :]
        times = [sample.seconds / 3600 for sample in warm]
        return float(np.polyfit(times, [sample.rss_mib for sample in warm], 1)[0])

    def commit_cost(self, begin: float, end: float) -> float:
        """Processor milliseconds a commit in a part of the run, from 0 to 1."""
        last = len(self.samples) - 1
        low, high = self.samples[round(begin * last)], self.samples[round(end * last)]
        commits = max(1, high.commits - low.commits)
        return (high.cpu_seconds - low.cpu_seconds) * 1000 / commits


def follow(load: Load, place: Path, table: Path) -> Outcome:
    """Publish to a server, follow it in a process of its own, and sample that.

    Args:
        load: the publisher.
        place: an empty directory for the server's store and the copy.
        table: the CSV file of samples; it grows during the run.
    """
    with server(store=place / "store") as started:
        _create(started)
        folder = _configured(place / "lake", started.url)
        log = _Log(folder / "streams" / NAME / "messages" / "_delta_log")
        with _following(folder) as process:
            started.publish([(f"{NAME}.first", b"", None)])
            _wait_for_end(process, started, log)
            with _publishing(started.url, load) as publisher:
                both = (process, publisher)
                samples = list(_sampled(load.every, both, log, started, table))
                _wait_for_end(process, started, log)
            process.send_signal(signal.SIGTERM)
            printed, told = process.communicate(timeout=60)
        if process.returncode:
            raise RuntimeError(f"the sync ended with {process.returncode}: {told}")
        (entry,) = json.loads(printed)["streams"]
    return Outcome(samples, log.lags(), entry)


class _Log:
    """The commits of the copy."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.commits = 0
        """The version of the newest commit; commit 0 makes the table."""
        self.seq = 0

    def look(self) -> None:
        """Find the newest commit and the last sequence that it names."""
        while (entry := self._place(self.commits + 1)).exists():
            self.commits += 1
            self.seq = max(
                [self.seq, *(int(action["txn"]["version"]) for action in _positions(entry))]
            )

    def lags(self) -> np.ndarray:
        """Seconds from the time of each message to the modification time of its commit."""
        return np.concatenate([np.empty(0), *self._lags()])

    def _lags(self) -> Iterator[np.ndarray]:
        for version in range(1, self.commits + 1):
            entry = self._place(version)
            at = entry.stat().st_mtime_ns
            for action in _actions(entry):
                if "add" in action:
                    file = self._directory.parent / action["add"]["path"]
                    yield (at - pq.read_table(file, columns=["ts_ns"])["ts_ns"].to_numpy()) / NS

    def _place(self, version: int) -> Path:
        return self._directory / f"{version:020}.json"


def _actions(entry: Path) -> Iterator[dict[str, Any]]:
    for line in entry.read_text().splitlines():
        if line:
            yield json.loads(line)


def _positions(entry: Path) -> Iterator[dict[str, Any]]:
    return (
        action
        for action in _actions(entry)
        if action.get("txn", {}).get("appId") == "batch/nats-sync"
    )


def _create(started: Nats) -> None:
    config = {"name": NAME, "subjects": [f"{NAME}.>"], "max_bytes": MOST_BYTES, "storage": "file"}
    started.request(f"STREAM.CREATE.{NAME}", config)


def _configured(folder: Path, url: str) -> Path:
    folder.mkdir()
    document = {"streams": [{"name": NAME, "sync": {"server": url}}]}
    (folder / "retention.yaml").write_text(json.dumps(document))
    return folder


@contextmanager
def _following(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(Path(sys.executable).parent / "retention"), "sync", "nats", NAME, "--follow"]
    command += ["--config", str(folder / "retention.yaml"), "--format", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _publishing(url: str, load: Load) -> Iterator[subprocess.Popen[bytes]]:
    given = map(str, [url, load.seconds, load.rate, *load.sizes])
    command = [sys.executable, "-m", "benchmarks.follow", "--publish", *given]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


async def _publish(url: str, load: Load) -> None:
    chance = np.random.default_rng(load.rate)
    bodies = [chance.bytes(size) for size in chance.integers(*load.sizes, DIFFERENT)]
    client = await nats.connect(url)
    begun, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - begun) < load.seconds:
        due = int(elapsed * load.rate)
        for number in range(sent, due):
            await client.publish(f"{NAME}.{number % SUBJECTS}", bodies[number % DIFFERENT])
        sent = due
        await client.flush()
        await asyncio.sleep(TICK_S)
    await client.close()


def _sampled(
    every: float,
    processes: tuple[subprocess.Popen[str], subprocess.Popen[bytes]],
    log: _Log,
    started: Nats,
    table: Path,
) -> Iterator[Sample]:
    """Samples of the first process until one of the two, the second of which publishes, has ended."""
    begun, place = time.monotonic(), Path("/proc") / str(processes[0].pid)
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*asdict(Sample(0, 0, 0, 0, 0, 0)), "behind"])
        writer.writeheader()
        while all(process.poll() is None for process in processes):
            log.look()
            elapsed = time.monotonic() - begun
            published = started.info(NAME)["state"]["last_seq"]
            rss, used = resident_mebibytes(place), used_seconds(place)
            sample = Sample(round(elapsed, 1), rss, used, log.commits, published, log.seq)
            writer.writerow({**asdict(sample), "behind": sample.behind})
            file.flush()
            yield sample
            _pause(every, processes[1])


def _pause(seconds: float, publisher: subprocess.Popen[bytes]) -> None:
    """Wait, at most until a process ends."""
    with suppress(subprocess.TimeoutExpired):
        publisher.wait(seconds)


def _wait_for_end(
    process: subprocess.Popen[str], started: Nats, log: _Log, within_s: float = 60
) -> None:
    end = time.monotonic() + within_s
    while process.poll() is None:
        if time.monotonic() > end:
            raise TimeoutError(f"the copy did not come to the server's end within {within_s:g} s")
        log.look()
        if log.seq == started.info(NAME)["state"]["last_seq"]:
            return
        time.sleep(0.2)


def report(load: Load, outcome: Outcome) -> Iterator[str]:
    """The lines of a summary."""
    done, lags = outcome.synced, outcome.lags
    messages = len(lags)
    median, high, most = np.quantile(lags, [0.5, 0.99, 1])
    came = f"{messages:,} messages in {done['commits']:,} commits"
    yield f"{came}, {load.rate:,} a second asked for; missed {done['missed']}"
    yield f"lag: median {median:.2f} s, p99 {high:.2f} s, most {most:.2f} s"
    resident = [sample.rss_mib for sample in outcome.samples]
    sizes = (
        f"{resident[0]:.0f} MiB at first, {max(resident):.0f} at most, {resident[-1]:.0f} at last"
    )
    yield f"memory: {sizes}; {outcome.slope:+.1f} MiB an hour after the first fifth"
    first, last = outcome.commit_cost(0.2, 0.4), outcome.commit_cost(0.8, 1)
    yield f"a commit: {first:.1f} processor ms in the second fifth of the run, {last:.1f} in the last"
    cpu = outcome.samples[-1].cpu_seconds * 1e6 / max(1, outcome.samples[-1].copied)
    yield f"a million messages: {cpu:.1f} processor seconds"


def main() -> int:
    """Follow, and print a summary; 1 if memory grew, or messages came late, more than allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.follow", description=__doc__)
    parser.add_argument("--seconds", type=float, default=Load.seconds)
    parser.add_argument("--rate", type=int, default=Load.rate, help="messages a second")
    parser.add_argument("--every", type=float, default=Load.every, help="seconds between samples")
    parser.add_argument("--directory", type=Path, help="where the store and the copy lie")
    parser.add_argument("--table", type=Path, help="the CSV file of samples")
    parser.add_argument("--most-growth", type=float, help="MiB an hour")
    parser.add_argument("--most-lag", type=float, help="seconds, for 99 of 100 messages")
    parser.add_argument("--publish", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.publish:
        url, seconds, rate, low, high = options.publish
        asyncio.run(_publish(url, Load(float(seconds), int(rate), (int(low), int(high)))))
        return 0
    load = Load(options.seconds, options.rate, every=options.every)
    with tempfile.TemporaryDirectory(prefix="follow-", dir=options.directory) as directory:
        table = options.table or Path(directory) / "samples.csv"
        say(f"samples: {table}")
        outcome = follow(load, Path(directory), table)
    for line in report(load, outcome):
        print(line, flush=True)
    grew = options.most_growth is not None and outcome.slope > options.most_growth
    late = options.most_lag is not None and np.quantile(outcome.lags, 0.99) > options.most_lag
    return int(grew or late)


if __name__ == "__main__":
    sys.exit(main())
