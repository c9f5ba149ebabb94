from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.year.__main__ import FORMATS, Pace, configure, run, table
from benchmarks.year.clock import COMPILER, compiled
from benchmarks.year.life import Life, WrongError
from benchmarks.year.workloads import STREAM, WORKLOADS, Keys, Limits
from retention.core.units import DAY

needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="needs a C compiler")
FIVE_DAYS = Pace(days=5, messages=8, hours_apart=3)
_TELL_TIMES = """
import pathlib, sys, time
from benchmarks.year.clock import set_clock
place, ahead = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(place / "before").touch()
set_clock(time.time_ns() + ahead)
(place / "after").touch()
print(time.time_ns(), *((place / name).stat().st_mtime_ns for name in ("before", "after")))
try:
    set_clock(time.time_ns() - ahead)
except ValueError as error:
    print(error)
"""


_SET_FORWARD = """
import sys, time
from benchmarks.year.clock import set_clock
set_clock(time.time_ns() + int(sys.argv[2]))
"""
_TELL_TIME_OF_FILE = """
import os, sys, time
print(time.time_ns(), os.stat(sys.argv[1]).st_mtime_ns)
"""


@needs_compiler
def test_a_process_believes_the_clock_and_its_files_keep_their_times(tmp_path: Path) -> None:
    def now_ns() -> int:
        (tmp_path / "now").touch()
        return (tmp_path / "now").stat().st_mtime_ns

    started = now_ns()
    done = subprocess.run(
        [sys.executable, "-c", _TELL_TIMES, str(tmp_path), str(10 * DAY)],
        env=compiled(tmp_path) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    ended = now_ns()
    times, refusal = done.stdout.splitlines()
    told_ns, before_ns, after_ns = map(int, times.split())
    assert started <= before_ns <= ended
    assert started + 10 * DAY <= after_ns <= told_ns <= ended + 10 * DAY
    assert "it is only set forward" in refusal


@needs_compiler
def test_processes_share_a_clock_that_one_of_them_has_set(tmp_path: Path) -> None:
    def told(text: str) -> str:
        program = [sys.executable, "-c", text, str(tmp_path / "file"), str(10 * DAY)]
        done = subprocess.run(program, env=shared, capture_output=True, text=True, check=True)
        return done.stdout

    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "MANUAL_CLOCK": str(tmp_path / "clock")}
    shared = compiled(tmp_path) | paths
    (tmp_path / "file").touch()
    before_ns = (tmp_path / "file").stat().st_mtime_ns
    told(_SET_FORWARD)
    now_ns, file_ns = map(int, told(_TELL_TIME_OF_FILE).split())
    assert now_ns >= before_ns + 10 * DAY
    assert file_ns == before_ns


@pytest.mark.thorough
@needs_compiler
def test_five_days_are_maintained_every_night_and_leave_the_right_messages(tmp_path: Path) -> None:
    figures = run(tmp_path, "limits", "delta", FIVE_DAYS)
    [month] = figures["months"]
    assert len(figures["nights"]) == month["days"] == 5
    removed, reclaimed = (
        [night[kind] for night in figures["nights"]] for kind in ("removed", "reclaimed")
    )
    assert any(removed)
    assert not any(reclaimed[:3])
    assert any(reclaimed[3:])
    assert month["disk"]["dead data"]["bytes"] <= month["grace_bytes"]
    assert month["amplification"] > 1
    assert "### `limits`, delta" in "\n".join(table(figures))


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_night_leaves_what_the_model_has(tmp_path: Path, name: str, format_: str) -> None:
    configure(tmp_path / "warehouse", name, format_)
    life = Life(tmp_path / "warehouse", WORKLOADS[name](30))
    for _ in range(3):
        stream = life.opened().stream(STREAM)
        life.workload.publish(stream)
        life.workload.work(stream)
    life.night()
    assert life.workload.left(life.opened().clock())


def test_other_messages_than_those_of_the_model_are_told(tmp_path: Path) -> None:
    configure(tmp_path / "warehouse", "limits", "delta")
    workload = Limits(4)
    life = Life(tmp_path / "warehouse", workload)
    workload.publish(life.opened().stream(STREAM))
    life.compare(life.opened().clock())
    workload.deadlines.pop(2)
    with pytest.raises(WrongError, match="1 messages are there that had to go, and 0 are gone"):
        life.compare(life.opened().clock())


def test_the_model_of_keys_has_the_newest_values_and_young_deletions() -> None:
    keys = Keys(6)
    for day in range(9):
        lines = keys.lines()
        keys.keep(range(10 * day, 10 * day + len(lines)), day * DAY)
        keys.hour += 1
    deleted = sorted(seq for seq, _ in keys.deletions.values())
    assert deleted == [10 * day + at for day in range(1, 9) for at in (4, 5)]
    left = keys.left(8 * DAY)
    assert {14, 15}.isdisjoint(left)
    assert {24, 25, 84, 85} <= left
