"""Simulation of one stream for a year in this process, hour by hour and night by night, by the manual clock."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.comparing import say
from benchmarks.year.clock import set_clock
from benchmarks.year.disk import DIGESTS_OF_DEAD, amounts, directories
from benchmarks.year.workloads import STREAM, WORKLOADS, Workload
from retention import open_warehouse
from retention.api.warehouse import Warehouse
from retention.core.outcomes import Outcome
from retention.core.units import HOUR
from retention.evidence.month_file import MonthFile
from retention.evidence.months import evidence_directory, month_files
from retention.jobs.retain import compact
from retention.storage import files

HOURS, MONTH_DAYS = 24, 30
"""The hours of a day, and the days of a month; a year has twelve months, and the last one has the extra days."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Spent:
    """The seconds of one step."""

    seconds: float
    cpu_seconds: float


class WrongError(Exception):
    """A pass kept other messages than the model."""


@dataclass
class Night:
    """The costs and effects of a night's maintenance."""

    retain: Spent
    compact: Spent
    reclaim: Spent
    removed: int
    copied_bytes: int
    """Bytes of copies written by the pass."""
    merged_bytes: int
    """Bytes written by the compaction."""
    reclaimed: int
    """Files deleted from the disk."""
    waiting_bytes: int
    """Bytes of dead files within their grace."""


class Life:
    """The simulation of a stream."""

    def __init__(self, warehouse: Path, workload: Workload, hours_apart: int = 1) -> None:
        """Begin in a configured warehouse, with `hours_apart` hours between publishes."""
        self.warehouse = warehouse
        self.workload = workload
        self.hours_apart = hours_apart
        self.publishes: list[Spent] = []
        self.nights: list[Night] = []
        self.came_bytes = 0
        """Bytes of files written by publishes."""
        self._known: set[str] = set()

    def day(self) -> None:
        """Simulate a day: its hours, then the night."""
        for _ in range(HOURS // self.hours_apart):
            set_clock((time.time_ns() // HOUR + self.hours_apart) * HOUR)
            # An hourly publisher is a process of its own.
            stream = self.opened().stream(STREAM)
            self.publishes.append(spent_on(partial(self.workload.publish, stream))[0])
            self.workload.work(stream)
        files = self.live_files()
        new = [row for row in files.to_pylist() if row["path"] not in self._known]
        self.came_bytes += sum(row["file_bytes"] for row in new)
        self.nights.append(self.night())
        self._known = set(self.live_files()["path"].to_pylist())

    def opened(self) -> Warehouse:
        """The warehouse, opened as by a new process."""
        return open_warehouse(self.warehouse, engine="local", clock=time.time_ns)

    def live_files(self) -> pa.Table:
        """The files of the newest version: `path` and `file_bytes`."""
        store = self.opened().stream(STREAM).opened.store
        return store.snapshot().files.select(["path", "file_bytes"])

    def night(self) -> Night:
        """Apply the rules, compact and reclaim, as the jobs do.

        Raises:
            WrongError: the remaining messages differ from the model.
        """
        as_of_ns = time.time_ns()
        retained, report = spent_on(lambda: done(self.opened().apply(as_of=as_of_ns)))
        compacted, merges = spent_on(lambda: done(compact(self.opened(), [STREAM])))
        reclaimed, reclaim = spent_on(lambda: done(self.opened().reclaim().apply()))
        self.compare(as_of_ns)
        waiting = [reclaim.staying[name] for name in ("grace", "recent") if name in reclaim.staying]
        return Night(
            retain=retained,
            compact=compacted,
            reclaim=reclaimed,
            removed=report.removed_messages,
            copied_bytes=report.bytes_written,
            merged_bytes=merges.bytes_written,
            reclaimed=reclaim.total.files,
            waiting_bytes=sum(amount.bytes for amount in waiting),
        )

    def compare(self, as_of_ns: int) -> None:
        """Compare the stored sequences with those of the model.

        Raises:
            WrongError: they differ.
        """
        tables = list(self.opened().stream(STREAM).messages())
        there = {seq for table in tables for seq in table["seq"].to_pylist()}
        left = self.workload.left(as_of_ns)
        if there != left:
            raise WrongError(
                f"night {len(self.nights) + 1}: {len(there - left)} messages are there that had to go, and "
                f"{len(left - there)} are gone that had to stay, such as {sorted(there ^ left)[0]}"
            )

    def evident_messages(self) -> int:
        """The number of removed messages in the evidence."""
        directory = evidence_directory(str(self.warehouse), STREAM)
        places = [name for names in month_files(directory).values() for name in names]
        tables = (
            table for name in places for table in MonthFile(files.join(directory, name)).tables()
        )
        return sum(pc.sum(table["messages"]).as_py() for table in tables)

    def month(self, days: int) -> dict[str, Any]:
        """The figures of the last days, and the current disk usage."""
        nights, publishes = self.nights[-days:], self.publishes[-days * HOURS // self.hours_apart :]
        live = self.live_files()
        live_bytes = sum(live["file_bytes"].to_pylist())
        disk = amounts(self.warehouse, set(live["path"].to_pylist()))
        total = sum(amount["bytes"] for amount in disk.values())
        # Dead files kept for another reason than their grace still count.
        held = [disk[kind]["bytes"] for kind in (DIGESTS_OF_DEAD, "reports") if kind in disk]
        in_grace = self.nights[-1].waiting_bytes + sum(held)
        merged = sum(night.merged_bytes for night in self.nights)
        spent = {
            name: middle(getattr(night, name) for night in nights)
            for name in ("retain", "compact", "reclaim")
        }
        return {
            "days": len(self.nights),
            "messages": len(self.workload.left(time.time_ns())),
            "files": sum(amount["files"] for amount in disk.values()),
            "directories": directories(self.warehouse),
            "disk": disk,
            "bytes": total,
            "live_bytes": live_bytes,
            "grace_bytes": in_grace,
            "outside_grace": round((total - in_grace) / max(live_bytes, 1), 3),
            "amplification": round((self.came_bytes + merged) / self.came_bytes, 3),
            "evidence": disk.get("evidence", {"files": 0, "bytes": 0})
            | {"messages": self.evident_messages()},
            "copied": round(sum(night.copied_bytes for night in self.nights) / self.came_bytes, 3),
            "spent": spent | {"publish": middle(publishes)},
        }


def done(outcomes: list[Outcome[Value]]) -> Value:
    """The value of the single stream's outcome; raises its error."""
    [outcome] = outcomes
    if outcome.value is None:
        raise outcome.error or AssertionError(outcome)
    return outcome.value


def spent_on(work: Callable[[], Value]) -> tuple[Spent, Value]:
    """Do the work; returns its seconds and its result."""
    started, used = time.perf_counter(), time.process_time()
    value = work()
    return Spent(time.perf_counter() - started, time.process_time() - used), value


def middle(spent: Iterable[Spent]) -> dict[str, float]:
    """The medians of several times, in seconds."""
    listed = list(spent)
    return {
        name: round(statistics.median(getattr(each, name) for each in listed), 5)
        for name in ("seconds", "cpu_seconds")
    }


def live(warehouse: Path, workload: Workload, days: int, hours_apart: int) -> dict[str, Any]:
    """Simulate some days; returns the figures of each month, and all nights."""
    life = Life(warehouse, workload, hours_apart)
    months: list[dict[str, Any]] = []
    for day in range(1, days + 1):
        life.day()
        is_last = day == days
        if is_last or (day % MONTH_DAYS == 0 and days - day >= MONTH_DAYS):
            months.append(life.month(day - sum(month["days"] for month in months[-1:])))
            say(f"day {day}: {json.dumps(months[-1])}")
    return {"months": months, "nights": [asdict(night) for night in life.nights]}


def main() -> None:
    """Simulate the warehouse named on the command line, and print the figures as JSON."""
    warehouse, name, *numbers = sys.argv[1:]
    messages, days, hours_apart = map(int, numbers)
    print(json.dumps(live(Path(warehouse), WORKLOADS[name](messages), days, hours_apart)))


if __name__ == "__main__":
    main()
