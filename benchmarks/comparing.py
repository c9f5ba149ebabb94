"""Comparison of contenders on one piece of work: turns, survivors, and progress."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.processes import ContenderError, Process
from benchmarks.tasks import Task


def compare(running: Mapping[str, Process], source: Path, asked: Task, runs: int) -> dict[str, Any]:
    """All contenders on one piece of work, in turns, after one uncounted run each."""
    taking_part = [name for name, process in running.items() if process.takes(name, asked)]
    done: dict[str, list[dict[str, Any]]] = {name: [] for name in taking_part}
    failed: dict[str, str] = {}
    for number in range(runs + 1):
        say(f"{asked.name}: {'warming up' if not number else f'run {number} of {runs}'}")
        # Alternate the direction, so that no contender always follows the same neighbour.
        for name in taking_part[:: 1 if number % 2 else -1]:
            if name in failed:
                continue
            try:
                outcome = running[name].run(name, source, asked)
            except ContenderError as error:
                failed[name] = str(error)
                continue
            done[name] += [outcome] if number else []
    left = {(run["messages"], run["seq_sum"]) for kept in done.values() for run in kept}
    if len(left) != 1:
        say(f"{asked.name}: the contenders do not leave the same messages: {sorted(left)}")
    entries = [report.summary(name, kept) for name, kept in done.items() if name not in failed]
    return {
        "task": asked.name,
        "title": asked.title,
        "messages": min(left)[0] if left else 0,
        "equal": len(left) == 1,
        "contenders": entries,
        "failed": failed,
    }


def choices(known: Sequence[str]) -> Any:
    """A parser of comma-separated lists of names for a command line."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]}: choose from {', '.join(known)}")
        return names

    return parse


def say(line: str) -> None:
    """Print the progress of a benchmark."""
    print(line, file=sys.stderr, flush=True)
