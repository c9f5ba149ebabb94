"""The long runs: tests and measurements that `make test` has no time for, one a line of `long.txt`.

`python -m scripts.long` lists them; `python -m scripts.long NAME [ARGUMENT…]` starts one in `.venv`.
"""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
TABLE = Path(__file__).with_name("long.txt")


class LongRun(NamedTuple):
    """A line of the table: minutes on two cores; variables, program and paths divided by spaces."""

    name: str
    minutes: str
    purpose: str
    variables: str
    program: str
    paths: str


def main(arguments: list[str]) -> None:
    """List the runs without arguments; otherwise replace this process by the named one."""
    runs = long_runs()
    if not arguments:
        for run in runs.values():
            print(f"  {run.name:<12}{run.minutes:>4} min  {run.purpose}")
        return
    run = named(arguments[0], runs)
    words = [*run.program.split(), *run.paths.split(), *arguments[1:]]
    variables = dict(variable.split("=") for variable in run.variables.split())
    os.chdir(ROOT)
    os.execve(BIN / words[0], words, os.environ | variables)  # noqa: S606


def long_runs() -> dict[str, LongRun]:
    """The table by name, in its order."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    runs = (LongRun(*(cell.strip() for cell in line.split("|"))) for line in lines)
    return {run.name: run for run in runs}


def named(name: str, runs: dict[str, LongRun]) -> LongRun:
    """The run of that name; exits with one sentence if there is none."""
    if name in runs:
        return runs[name]
    near = difflib.get_close_matches(name, runs, n=1)
    hint = f"did you mean {near[0]}?" if near else "`make long` lists all."
    sys.exit(f"There is no long run {name}: {hint}")


if __name__ == "__main__":
    main(sys.argv[1:])
