"""The slow tests, of which `make test` runs a part: measured in processor seconds and listed in a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

LISTED = Path(__file__).parents[1] / "slow-tests.txt"
SLOW_S = 1.0
"""The processor seconds, those of child processes included, from which a test is slow."""
VERY_SLOW_S = 10.0
"""The processor seconds from which a test is left to the long runs."""
MEASURED = os.environ.get("RETENTION_MEASURED")
"""The file to which a run appends the processor seconds of its tests: `make long NAME=slow-tests`."""


@cache
def slow_functions() -> dict[str, float]:
    """Name of a slow test function, without cases → processor seconds of a case."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for seconds, name in map(str.split, lines)}


def function_of(test: str) -> str:
    """The name of a test without its case."""
    return test.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Append a test's processor seconds, in a process that runs tests (plugin `-p tests.support.slow_tests`)."""
    before = _processor_seconds()
    done: Any = yield
    if MEASURED and (
        os.environ.get("PYTEST_XDIST_WORKER") or not item.config.getoption("numprocesses")
    ):
        with Path(MEASURED).open("a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, _processor_seconds() - before]) + "\n")
    return done


def _processor_seconds() -> float:
    """Processor seconds of this process and of its descendants, also of ended ones."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for process in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            fields = (
                Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            )
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(process))
        ticks[int(process)] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        process_id = left.pop()
        total += ticks.get(process_id, 0)
        left += children.get(process_id, [])
    return total / os.sysconf("SC_CLK_TCK")


def main(measured: Path) -> None:
    """Write the list of slow tests from a run's measurements; conformance cases have a share of their own."""
    seconds: dict[str, list[float]] = {}
    for line in measured.read_text(encoding="utf-8").splitlines():
        test, of_case = json.loads(line)
        if not test.startswith(("tests/conformance/", "tests/architecture/")):
            seconds.setdefault(function_of(test), []).append(of_case)
    means = {function: mean(cases) for function, cases in seconds.items()}
    slow = sorted((name, each) for name, each in means.items() if each >= SLOW_S)
    lines = [f"{each:6.1f} {name}\n" for name, each in slow]
    LISTED.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
