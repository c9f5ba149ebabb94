"""Processes that concurrently write, maintain and read one stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import polars as pl
import pyarrow as pa

from retention.api.stream import Stream
from retention.errors import BusyError, StalePlanError
from tests.support.witness import Seen, opened_at, pairs

ROOT = Path(__file__).parents[2]
EVERY_S = 0.2
EACH = 10
TOGETHER_S = 0.5
LONGEST_S = 300
LOADED = (
    "pandas",
    "pyarrow.acero",
    "pyarrow.dataset",
    "retention.stores.delta.store",
    "retention.stores.parquet.store",
)
"""Lazily loaded modules, imported before the forks so that all workers start together."""


class Pace:
    """Rounds at the same instants in all processes, until the time is up."""

    def __init__(self, seconds: float, every_s: float) -> None:
        self._until = time.monotonic() + seconds
        self._every_s = every_s

    def __iter__(self) -> Iterator[int]:
        number = 0
        while time.monotonic() < self._until:
            yield number
            number += 1
            now = time.monotonic()
            time.sleep(self._every_s - now % self._every_s)


def append(folder: Path, name: str, seconds: float) -> dict[str, Any]:
    """Publish a batch every 200 ms; every fifth batch is sent twice, as after a lost answer."""
    stream = opened_at(folder).stream("ORDERS")
    acks: dict[int, str] = {}
    slowest = 0.0
    repeats = 0
    for number in Pace(seconds, EVERY_S):
        payloads = [f"{name}-{number}-{n}" for n in range(EACH)]
        lines = [json.dumps({"subject": f"s.{n}", "data": p}) for n, p in enumerate(payloads)]
        began = time.monotonic()
        answered = stream.publish(lines, name, number + 1)
        slowest = max(slowest, time.monotonic() - began)
        acks |= dict(zip((ack.seq for ack in answered.acks()), payloads, strict=True))
        if number % 5 == 0:
            repeats += 1
            assert stream.publish(lines, name, number + 1).appended.duplicate
    return {
        "appends": len(acks) // EACH,
        "repeats": repeats,
        "acks": acks,
        "slowest_s": round(slowest, 2),
    }


def maintain(folder: Path, _: str, seconds: float) -> dict[str, Any]:
    """Run passes at the same instants as the other maintainers, with a new or an earlier plan."""
    warehouse = opened_at(folder)
    counts: Counter[str] = Counter()
    for number in Pace(seconds, TOGETHER_S):
        if number % 2:
            planned = [outcome.value for outcome in warehouse.plan(["ORDERS"])]
            (outcome,) = warehouse.apply_plans([plan for plan in planned if plan is not None])
        else:
            (outcome,) = warehouse.apply(["ORDERS"])
        report = outcome.value
        if report is None:
            assert outcome.exit_code in (BusyError.exit_code, StalePlanError.exit_code), (
                outcome.sentence
            )
            counts[f"lost: {type(outcome.error).__name__}"] += 1
            continue
        counts["removed"] += report.removed_messages
        counts["rewritten"] += report.segments["rewritten"]
        counts["dropped"] += report.segments["dropped"]
        counts["passes" if report.removed_messages else "passes with nothing due"] += 1
    return dict(counts)


def read(folder: Path, ways: str, seconds: float) -> dict[str, Any]:
    """Read the whole stream repeatedly, in turn by each of the named ways."""
    stream = opened_at(folder).stream("ORDERS")
    place = str(folder / "streams" / "ORDERS" / "messages")
    seen = Seen()
    for number in Pace(seconds, 0.01):
        seen.state(WAYS[ways.split("+")[number % len(ways.split("+"))]](stream, place))
    return {"states": seen.states, "messages": seen.messages}


def _ours(stream: Stream, _: str) -> list[tuple[int, bytes]]:
    return pairs(pa.concat_tables(stream.messages()))


def _polars(frame: pl.DataFrame) -> list[tuple[int, bytes]]:
    return frame.select("seq", "payload").rows()


WAYS: Mapping[str, Callable[[Stream, str], list[tuple[int, bytes]]]] = {
    "ours": _ours,
    "scan_delta": lambda _, place: _polars(pl.scan_delta(place).select("seq", "payload").collect()),
    "read_delta": lambda _, place: _polars(pl.read_delta(place)),
    "polars": lambda stream, _: _polars(
        pl.concat(pl.DataFrame(table) for table in stream.messages())
    ),
}


def query(folder: Path) -> None:
    """Stream arriving files of a folder into the stream, until standard input signals the end."""
    from retention.engines.spark.session import build_session

    spark = build_session("sink", java_options="-XX:TieredStopAtLevel=1")
    source = spark.readStream.schema("subject string, payload string, ts_ns long")
    running = (
        source.json(str(folder / "arriving"))
        .writeStream.foreachBatch(opened_at(folder).stream("ORDERS").sink("query"))
        .option("checkpointLocation", str(folder / "seen"))
        .trigger(processingTime=f"{EVERY_S} seconds")
        .start()
    )
    sys.stdin.readline()
    running.processAllAvailable()
    running.stop()
    spark.stop()


ROLES: Mapping[str, Callable[[Path, str, float], dict[str, Any]]] = {
    "append": append,
    "maintain": maintain,
    "read": read,
}


class Crew:
    """A process that forks a worker for each role, all at the same instant.

    The parent only imports; deltalake, Polars and Arrow start threads in the forks, where this is safe.
    """

    def __init__(self, folder: Path, seconds: float, *roles: str) -> None:
        self._answers = folder / "answers"
        self._answers.mkdir()
        self._process = started("crew", folder, str(seconds), *roles)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)

    def go(self) -> None:
        """Start all workers."""
        say(self._process)

    def results(self) -> dict[str, dict[str, Any]]:
        """The final answers of all workers; none may have failed."""
        assert self._process.wait(LONGEST_S) == 0, "a worker failed"
        return {
            place.stem: json.loads(place.read_text()) for place in sorted(self._answers.iterdir())
        }


class Query:
    """A streaming query into the stream, in a process that can be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = started("query", folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)

    def kill(self) -> None:
        """Kill it by SIGKILL, and restart it."""
        assert self._process.poll() is None, "the query failed"
        end(self._process)
        self._process = started("query", self._folder)

    def finish(self) -> None:
        """Let it process all arrived files, and stop."""
        say(self._process)
        assert self._process.wait(LONGEST_S) == 0, "the query failed"


def started(*said: Any) -> subprocess.Popen[str]:
    """Start this module as a process."""
    command = [sys.executable, "-m", __name__, *said]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, text=True)


def say(process: subprocess.Popen[str]) -> None:
    """Signal a waiting process."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process if it still runs."""
    process.kill()
    process.communicate()


@contextmanager
def repeating(*acts: Callable[[], None], every_s: float = 0.0) -> Iterator[None]:
    """Repeat each act in its own thread during the block; the first failure is raised at the end."""
    over = Event()
    failures: list[BaseException] = []

    def repeat(act: Callable[[], None]) -> None:
        try:
            while not over.wait(every_s):
                act()
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=repeat, args=(act,)) for act in acts]
    with ExitStack() as stack:
        stack.callback(over.set)
        for thread in threads:
            thread.start()
        yield
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def crew(folder: Path, seconds: float, roles: list[str]) -> int:
    """Fork the roles (`append:a`) on a signal; returns the number of failed ones."""
    for module in LOADED:
        import_module(module)
    sys.stdin.readline()
    pids = [_forked(folder, seconds, role) for role in roles]
    return sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in pids)


def _forked(folder: Path, seconds: float, role: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        kind, _, name = role.partition(":")
        answer = ROLES[kind](folder, name, seconds)
        (folder / "answers" / f"{kind} {name}.json").write_text(json.dumps(answer))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "query":
        query(Path(place))
    else:
        sys.exit(crew(Path(place), float(rest[0]), rest[1:]))
