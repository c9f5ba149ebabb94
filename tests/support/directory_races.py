"""Runs on a directory of Parquet files and its writer, each in its own fork, all at the same time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from retention.config.keeping import RunSettings
from retention.core.units import DAY
from retention.engines.local import LocalEngine
from retention.errors import BusyError, RefusedError
from retention.history.kinds import TableApplied
from retention.tables.apply import apply_now
from retention.tables.opened import OpenedTable
from retention.tables.reclaim import reclaim_table
from retention.tables.undo import undo_run
from tests.retention.tables import directories
from tests.retention.tables.directories import Directory
from tests.retention.tables.tables import NOW
from tests.support.crew import serve

SETTINGS = RunSettings.model_validate({"grace": "1d"})
OLD, NEW = [30, 20], [1]
"""Ages of rows, in days."""


def opened(folder: Path, days: float, warehouse: str = "warehouse") -> OpenedTable:
    """The table of a warehouse as at so many days after `NOW`."""
    now_ns = NOW + int(days * DAY)
    table = replace(directories.at(folder).opened, warehouse=str(folder / warehouse))
    return replace(table, clock=lambda: now_ns, settings=SETTINGS, wait_s=20)


def prepare(folder: Path) -> None:
    """A directory of old and new files, with a run that removed others two days ago."""
    table = directories.directory(folder)
    table.write("kind=x/a.parquet", OLD)
    run_pass(folder, -2)
    for number in range(6):
        table.write(f"kind=x/{number}.parquet", OLD if number % 2 else NEW)


def run_pass(folder: Path, days: float = 0, warehouse: str = "warehouse") -> None:
    table = opened(folder, days, warehouse)
    apply_now(table, table.clock(), lambda _: LocalEngine())


def undo(folder: Path) -> None:
    """Undo the newest pass, unless there is none that can be undone."""
    table = opened(folder, 0)
    runs = [each.run for each in table.history.outcomes() if isinstance(each, TableApplied)]
    undo_run(table, runs[0])


def reclaim(folder: Path) -> None:
    reclaim_table(opened(folder, 0.5))


def write(folder: Path) -> None:
    """Add complete files one after the other, as a sink does, some of them with old rows only."""
    table = Directory(opened(folder, 0))
    for number in range(10, 30):
        path = f"kind=z/{number}.parquet"
        place = table.write(f"{path}+tmp", OLD if number % 2 else NEW)
        os.utime(place, (1, 1))
        place.rename(table.root / path)
        time.sleep(0.002)


ACTS: dict[str, Callable[[Path], None]] = {
    "pass": run_pass,
    "pass of another warehouse": partial(run_pass, warehouse="other"),
    "undo": undo,
    "reclaim": reclaim,
    "write": write,
}


def _in_a_fork(case: dict[str, Any]) -> None:
    folder = Path(case["folder"])
    if case["do"] == "prepare":
        prepare(folder)
        return
    time.sleep(case["after_s"])
    answer = "done"
    try:
        ACTS[case["do"]](folder)
    except (BusyError, RefusedError) as error:
        answer = f"{type(error).__name__}: {error}"
    Path(case["result"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    serve(_in_a_fork)
