"""One process of a run at scale: prepares the input or runs one step, and prints the cost as JSON."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.meter import Watch, measure
from benchmarks.scale.ack_log import AckLogs
from benchmarks.scale.foreign_files import ForeignFiles
from benchmarks.scale.logged_files import LoggedFiles
from benchmarks.scale.step import Step, Work
from benchmarks.scale.subjects import Subjects
from benchmarks.spark_stages import stages_of
from retention.engines.select import EngineName
from retention.engines.spark.session import session

MAKE = "make"
NAMES = ("subjects", "files", "logged-files", "acks")


def work_of(name: str, scale: float, each: int) -> Work:
    """The work at a share of the full size; `each` is the number of spans of a subject."""
    if name == "subjects":
        return Subjects.of(scale, each)
    if name == "logged-files":
        return LoggedFiles(ForeignFiles.of(scale))
    return ForeignFiles.of(scale) if name == "files" else AckLogs.of(scale)


def run(step: Step, engine: EngineName) -> dict[str, Any]:
    """Run a step; returns its cost, the peaks of resident memory, its result, and Spark's stages."""
    outcome: list[Any] = []
    with ExitStack() as stack:
        spark = stack.enter_context(session("scale")) if engine == "spark" else None
        os.sync()
        with Watch() as watch:
            cost = measure(lambda: outcome.append(step.act()))
        stages = [] if spark is None else stages_of(spark)
    figures = step.check(outcome[0])
    return asdict(cost) | {"peaks": watch.peaks(), "figures": figures, "stages": stages}


def main() -> None:
    """Run the command line; the answer is written to the original standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    name, scale, each, step, engine, place = sys.argv[1:]
    work = work_of(name, float(scale), int(each))
    if step == MAKE:
        work.make(Path(place))
        answer: Any = list(work.steps(Path(place), engine))  # type: ignore[arg-type]
    else:
        answer = run(work.steps(Path(place), engine)[step], engine)  # type: ignore[arg-type]
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
