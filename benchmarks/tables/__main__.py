"""`python -m benchmarks.tables`: rows leave a Delta table by age, by deadline, and beyond the last of each key."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.comparing import choices, say
from benchmarks.meter import measure
from benchmarks.tables.contenders import CONTENDERS
from benchmarks.tables.data import TASKS, Size, TaskName, make_table

Result = dict[str, Any]


def main() -> int:
    """Let contenders work in turns; 1 if the rows that they leave differ."""
    options = _parser().parse_args()
    size = Size(options.rows, options.files)
    if options.serve:
        _serve(options.serve, size)
        return 0
    with tempfile.TemporaryDirectory(prefix="tables-", dir=options.directory) as folder:
        needed = sorted({CONTENDERS[name].vectors for name in options.contenders})
        sources = {vectors: Path(folder, f"vectors-{vectors}") for vectors in needed}
        for vectors, source in sources.items():
            say(f"making a table of {size.rows:,} rows in {size.files} files")
            make_table(source, size, vectors=vectors)
        equal = True
        for task in options.only:
            found = _compare(task, sources, size, options)
            print(_table(task, found), flush=True)
            equal &= len({tuple(run["left"]) for runs in found.values() for run in runs}) == 1
    return 0 if equal else 1


def _compare(
    task: TaskName, sources: dict[bool, Path], size: Size, options: argparse.Namespace
) -> dict[str, list[Result]]:
    names = [name for name in options.contenders if task in CONTENDERS[name].tasks]
    found: dict[str, list[Result]] = {name: [] for name in names}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(_worker(name, size)) for name in names}
        for number in range(1 - options.warm_ups, options.runs + 1):
            for name in names[:: 1 if number % 2 else -1]:
                say(f"{task}: {f'run {number}' if number > 0 else 'warming up'}: {name}")
                source = sources[CONTENDERS[name].vectors]
                place = source.parent / f"{task}-{names.index(name)}-{number}"
                result = _asked(workers[name], task, source, place)
                found[name] += [result] if number > 0 else []
    return found


@contextmanager
def _worker(name: str, size: Size) -> Iterator[subprocess.Popen[str]]:
    arguments = [f"--serve={name}", f"--rows={size.rows}", f"--files={size.files}"]
    command = [sys.executable, "-m", "benchmarks.tables", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        yield worker
        worker.communicate()


def _asked(worker: subprocess.Popen[str], task: TaskName, source: Path, place: Path) -> Result:
    print(json.dumps([task, str(source), str(place)]), file=worker.stdin, flush=True)
    answer = worker.stdout.readline() if worker.stdout is not None else ""
    if not answer:
        sys.exit("a contender's process ended; see above")
    result: Result = json.loads(answer)
    return result


def _serve(name: str, size: Size) -> None:
    """Execute the requested runs of one contender, one JSON line each."""
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    contender = CONTENDERS[name]()
    contender.open()
    for line in sys.stdin:
        task, source, place = json.loads(line)
        contender.place(Path(source), Path(place))
        # Flush earlier writes, so that the fsync of this run does not wait for them.
        os.sync()
        cost = measure(lambda: contender.run(Path(place), task, size))  # noqa: B023
        left = contender.survivors(Path(place))
        for made in Path(place).parent.glob(f"{Path(place).name}*"):
            shutil.rmtree(made)
        print(json.dumps(asdict(cost) | {"left": left}), file=answers, flush=True)
    contender.close()


def _table(task: TaskName, found: dict[str, list[Result]]) -> str:
    """A Markdown table of medians, least processor time first."""
    figures = {
        name: {
            figure: median(run[figure] or 0 for run in runs)
            for figure in ("seconds", "cpu_seconds", "bytes_read", "bytes_written")
        }
        for name, runs in found.items()
    }
    least = min(each["cpu_seconds"] for each in figures.values())
    left = {tuple(run["left"]) for runs in found.values() for run in runs}
    lines = [
        f"### {task}: {' or '.join(f'{rows:,}' for rows, _ in sorted(left))} rows stay",
        "",
        "| | processor seconds (least to most) | times the least | seconds | MB read | MB written |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in sorted(figures.items(), key=lambda item: item[1]["cpu_seconds"]):
        spent = [run["cpu_seconds"] for run in found[name]]
        lines.append(
            f"| {name} | {each['cpu_seconds']:.2f} ({min(spent):.2f} to {max(spent):.2f}) "
            f"| {each['cpu_seconds'] / least:.1f} | {each['seconds']:.2f} "
            f"| {each['bytes_read'] / 1e6:,.1f} | {each['bytes_written'] / 1e6:,.1f} |"
        )
    return "\n".join([*lines, ""])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each contender")
    parser.add_argument("--warm-ups", type=int, default=1, help="that are not counted")
    parser.add_argument("--only", type=choices(TASKS), default=TASKS, help=", ".join(TASKS))
    parser.add_argument(
        "--contenders",
        type=choices(tuple(CONTENDERS)),
        default=tuple(name for name in CONTENDERS if not name.startswith("ours-spark")),
        help="; ".join(CONTENDERS),
    )
    parser.add_argument("--directory", type=Path, help="where tables and copies lie")
    parser.add_argument("--serve", choices=tuple(CONTENDERS), help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
