"""`python -m benchmarks.scale`: 100 million subjects, a million files of another writer, a log of 100 million acks."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparing import choices, say
from benchmarks.scale.process import MAKE, NAMES

ENGINES = ("local", "spark")
_ROOT = Path(__file__).parents[2]


class FailedError(Exception):
    """A process of a run failed."""


def measured(
    name: str, engine: str, options: argparse.Namespace, place: Path
) -> Iterator[dict[str, Any]]:
    """Prepare some work, and run its steps, each in its own process.

    Raises:
        FailedError: a process did not end in time, or failed, or its result is wrong; see its output.
    """

    def process(step: str) -> Any:
        say(f"{name}, {engine}: {step}")
        arguments = [name, str(options.scale), str(options.each), step, engine, str(place)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.scale.process", *arguments],
                cwd=_ROOT,
                stdout=subprocess.PIPE,
                check=True,
                timeout=options.seconds,
            )
        except subprocess.SubprocessError as error:
            raise FailedError(f"{name}, {engine}: {step}: {error}") from error
        return json.loads(done.stdout)

    for step in process(MAKE):
        yield {"work": name, "engine": engine, "step": step} | process(step)


def line(run: dict[str, Any]) -> str:
    """A row of the Markdown table; peaks are resident memory, and a session's JVM is both driver and executors."""
    shuffled = sum(stage["shuffle_written"] for stage in run["stages"])
    peaks = [run["peaks"].get(kind, 0) for kind in ("driver", "java", "worker")]
    moved = [amount / 1e6 for amount in (run["bytes_read"], run["bytes_written"], shuffled)]
    size = ", ".join(f"{count:,} {what}" for what, count in run["figures"].items())
    return (
        f"| {size} | {run['engine']} | {run['step']} | {run['seconds']:,.1f} | {run['cpu_seconds']:,.1f} | "
        + " | ".join(f"{cell:,.0f}" for cell in (*moved, *peaks))
        + " |"
    )


def stage_lines(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The rows of a Markdown table of Spark's stages."""
    for run in runs:
        for stage in run["stages"]:
            moved = [stage[name] for name in ("shuffle_read", "shuffle_written", "result_bytes")]
            cells = [stage["task_ms"] / 1e3, *(amount / 1e6 for amount in moved)]
            yield (
                f"| {run['work']}, {run['step']} | {stage['of']} | {stage['tasks']:,} | "
                + " | ".join(f"{cell:,.1f}" for cell in cells)
                + " |"
            )


def main() -> int:
    """Measure, and print Markdown tables; 1 if a process failed or an outcome is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the whole size")
    parser.add_argument("--only", type=choices(NAMES), default=NAMES, help=", ".join(NAMES))
    parser.add_argument("--engines", type=choices(ENGINES), default=("spark",))
    parser.add_argument(
        "--each", type=int, choices=(1, 2, 5, 10), default=2, help="subject's spans"
    )
    parser.add_argument("--seconds", type=int, default=7_200, help="that a step may take")
    parser.add_argument("--directory", type=Path, help="where everything lies")
    parser.add_argument("--output", type=Path, help="where the results go, as JSON")
    options = parser.parse_args()
    runs: list[dict[str, Any]] = []
    print(
        "| what | engine | step | seconds | processor seconds | MB read | MB written | MB shuffled "
        "| peak MB: Python | JVM | a worker |\n" + "|---" * 11 + "|"
    )
    try:
        for name in options.only:
            for engine in options.engines:
                with tempfile.TemporaryDirectory(prefix="scale-", dir=options.directory) as place:
                    for run in measured(name, engine, options, Path(place)):
                        runs.append(run)
                        print(line(run), flush=True)
    except FailedError as error:
        say(str(error))
        return 1
    finally:
        if options.output:
            options.output.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    print(
        "\n| step | Spark's stage | tasks | seconds of tasks | MB read | MB shuffled | MB to the driver |"
    )
    print("|---" * 7 + "|\n" + "\n".join(stage_lines(runs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
